-- The position of a queued job is counted in this index alone: no row of another job is read.

drop index jobs_live;

create index jobs_live on jobs (state, engine, priority desc, created_us, id)
    where state in ('QUEUED', 'PREPARING', 'RUNNING', 'CANCELLING');
