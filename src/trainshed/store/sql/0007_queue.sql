-- The order of the queue: whose job it is, how many replicas it has, when a job behind it first started before it, and what
-- users of projects have in use lately. A job that was there before counts as one replica of nobody.

alter table jobs add column user_name text not null default '';

alter table jobs add column replicas integer not null default 1;

alter table jobs add column passed_over_us bigint;

create table slot_usage (
    project {name} not null,
    user_name {name} not null,
    slot_seconds double precision not null,
    as_of_us bigint not null,
    primary key (project, user_name)
);
