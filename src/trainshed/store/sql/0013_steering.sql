-- What people changed about a search while it runs, and points of their own that no trial has tried yet.

create table search_steering (
    project {name} not null,
    job {name} not null,
    max_trials integer,
    max_parallel integer,
    finish text not null,
    primary key (project, job)
);

create table own_points (
    project {name} not null,
    job {name} not null,
    number integer not null,
    point text not null,
    primary key (project, job, number)
);
