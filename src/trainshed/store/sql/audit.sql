-- insert_entry
insert into audit (time_us, project, user_name, address, method, resource, outcome, times)
values (:time_us, :project, :user_name, :address, :method, :resource, :outcome, :times);

-- newest_first
select * from audit
where (:project = '*' or project = :project)
  and time_us >= :since_us
  and (time_us < :before_us or (time_us = :before_us and id < :before_id))
  and (:user_name = '' or user_name = :user_name)
  and (:outcome = '' or outcome = :outcome or (:outcome = 'refused' and outcome <> 'OK'))
  and lower(method) like :method escape '!'
  and lower(resource) like :resource escape '!'
order by time_us desc, id desc
limit :most;

-- as_committed
select * from audit
where (:project = '*' or project = :project)
  and id > :after_id
  and (:user_name = '' or user_name = :user_name)
  and (:outcome = '' or outcome = :outcome or (:outcome = 'refused' and outcome <> 'OK'))
  and lower(method) like :method escape '!'
  and lower(resource) like :resource escape '!'
order by id
limit :most;

-- between
select * from audit
where project = :project
  and (time_us > :after_us or (time_us = :after_us and id > :after_id))
  and time_us <= :until_us
order by time_us, id
limit :most;

-- between_descending
select * from audit
where project = :project
  and time_us >= :since_us
  and (time_us < :before_us or (time_us = :before_us and id < :before_id))
order by time_us desc, id desc
limit :most;

-- last_id
select coalesce(max(id), 0) as id from audit;

-- forget
delete from audit where time_us < :before_us or id <= :up_to_id;
