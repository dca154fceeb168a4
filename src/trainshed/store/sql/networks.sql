-- find_network
select access from networks where project = :project;

-- put_network
insert into networks (project, access) values (:project, :access)
on conflict (project) do update set access = excluded.access;

-- delete_network
delete from networks where project = :project;
