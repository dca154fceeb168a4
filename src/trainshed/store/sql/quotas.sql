-- SQLite uses the index of live jobs only where a query repeats the index's own condition, word for word. A user `''` is all.

-- all_quotas
select * from quotas order by project, user_name, name;

-- lock_quotas
select name from quotas where project = :project or project = '*' order by project, user_name, name for update;

-- put_quota
insert into quotas (project, user_name, name, value) values (:project, :user_name, :name, :value)
on conflict (project, user_name, name) do update set value = excluded.value;

-- delete_quota
delete from quotas where project = :project and user_name = :user_name and name = :name;

-- running_replicas
select coalesce(sum(replicas), 0) as used from jobs
 where state in ('PREPARING', 'RUNNING', 'CANCELLING') and state in ('QUEUED', 'PREPARING', 'RUNNING', 'CANCELLING')
   and project = :project and (user_name = :user_name or :user_name = '');

-- queued_replicas
select coalesce(sum(replicas), 0) as used from jobs
 where state = 'QUEUED' and state in ('QUEUED', 'PREPARING', 'RUNNING', 'CANCELLING')
   and project = :project and (user_name = :user_name or :user_name = '');

-- jobs_since
select count(*) as used from jobs
 where project = :project and parent = '' and order_us > :since_us
   and (user_name = :user_name or :user_name = '');

-- versions
select count(*) as used from versions where project = :project;

-- version_bodies
select body from versions where project = :project and state <> 'DELETING';

-- projects_with_work
select project from jobs union select project from models order by 1;
