-- Lists and queues follow the order of creation, also after the clock was set back: `order_us` is the time of creation, or
-- one more than the last one's if that time is earlier.

alter table jobs add column order_us bigint not null default 0;

update jobs set order_us = created_us;

drop index jobs_newest;

create index jobs_newest on jobs (project, order_us desc, id desc);

drop index jobs_live;

create index jobs_live on jobs (state, engine, priority desc, order_us, id)
    where state in ('QUEUED', 'PREPARING', 'RUNNING', 'CANCELLING');

create index jobs_order on jobs (order_us);

alter table models add column order_us bigint not null default 0;

update models set order_us = created_us;

drop index models_newest;

create index models_newest on models (project, order_us desc, id desc);

create index models_order on models (order_us);

alter table versions add column order_us bigint not null default 0;

update versions set order_us = created_us;

drop index versions_newest;

create index versions_newest on versions (project, model, order_us desc, id desc);

create index versions_order on versions (order_us);

alter table operations add column order_us bigint not null default 0;

update operations set order_us = created_us;

create index operations_order on operations (order_us);
