-- Trials of tuning jobs. Each is a job of its own in the queue, with its parent and its number; a tuning job itself has no
-- replicas. A row of `trials` has what the search knows of one: its values, and its measurements once it has ended.

alter table jobs add column parent {name} not null default '';

alter table jobs add column trial integer not null default 0;

create index jobs_trials on jobs (project, parent, trial) where parent <> '';

create index jobs_tuning on jobs (state) where replicas = 0;

create table trials (
    project {name} not null,
    job {name} not null,
    number integer not null,
    point text not null,
    outcome text not null,
    stopped text not null,
    primary key (project, job, number)
);
