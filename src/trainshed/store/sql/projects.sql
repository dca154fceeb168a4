-- get_project
select id, number, created_us from projects where id = :id;

-- insert_project
insert into projects (id, number, created_us) values (:id, :number, :created_us);
