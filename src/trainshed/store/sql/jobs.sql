-- SQLite uses the index of live jobs only where a query repeats the index's own condition, word for word. A job without
-- replicas is a tuning job: its trials run. A job with a parent is a trial, which lists leave out.

-- insert_job
insert into jobs (project, id, body, labels, state, priority, attempt, runtime, engine, created_us, started_us, ended_us, failure, generation, user_name, replicas, passed_over_us, parent, trial, order_us)
values (:project, :id, :body, :labels, :state, :priority, :attempt, :runtime, :engine, :created_us, :started_us, :ended_us, :failure, 1,
        :user_name, :replicas, :passed_over_us, :parent, :trial,
        (select case when max(order_us) > cast(:created_us as bigint) then max(order_us) + 1
                     else cast(:created_us as bigint) end from jobs));

-- order_of
select order_us from jobs where project = :project and id = :id;

-- get_job
select * from jobs where project = :project and id = :id;

-- job_keys
select project, id from jobs;

-- live_of_user
select project, id from jobs
 where state in ('QUEUED', 'PREPARING', 'RUNNING', 'CANCELLING') and user_name = :user and parent = ''
 order by order_us desc;

-- lock_job
select id from jobs where project = :project and id = :id for update;

-- update_job
update jobs
   set labels = :labels, state = :state, attempt = :attempt, runtime = :runtime, started_us = :started_us,
       ended_us = :ended_us, failure = :failure, generation = generation + 1
 where project = :project and id = :id and generation = :generation;

-- list_jobs
select * from jobs
 where project = :project and parent = '' and (order_us, id) < (:before_us, :before_id)
 order by order_us desc, id desc limit :limit;

-- active_jobs
select * from jobs
 where state in ('PREPARING', 'RUNNING', 'CANCELLING') and state in ('QUEUED', 'PREPARING', 'RUNNING', 'CANCELLING')
   and replicas > 0
 order by order_us, id;

-- pass_over
update jobs set passed_over_us = :time_us
 where project = :project and id = :id and state = 'QUEUED' and passed_over_us is null;

-- queued_keys
select engine, priority, order_us, id, project, user_name, replicas, passed_over_us from jobs
 where state = 'QUEUED' and state in ('QUEUED', 'PREPARING', 'RUNNING', 'CANCELLING') and replicas > 0;

-- last_trial
select coalesce(max(trial), 0) as last from jobs where project = :project and parent = :parent and parent <> '';

-- insert_event
insert into job_events (project, job, time_us, kind, subject, severity, message)
values (:project, :job, :time_us, :kind, :subject, :severity, :message);

-- events_of
select seq, time_us, kind, subject, severity, message from job_events where project = :project and job = :job order by seq;

-- event_spans
select job, min(time_us) as first_us, max(time_us) as last_us from job_events where project = :project group by job;
