-- The head of each engine's queue is read from this index, in order.

drop index jobs_live;

create index jobs_live on jobs (state, engine, priority desc, created_us, id)
    where state in ('QUEUED', 'PREPARING', 'RUNNING', 'CANCELLING');
