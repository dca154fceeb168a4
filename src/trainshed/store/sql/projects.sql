-- get_project
select id, number, created_us from projects where id = :id;

-- get_project_of_number
select id, number, created_us from projects where number = :number;

-- insert_project
insert into projects (id, number, created_us) values (:id, :number, :created_us);

-- used_projects
select project from buckets union select project from jobs union select project from models order by project;
