-- Studies, their trials and measurements, and the operations that clients ask for after a suggestion.

create table studies (
    project {name} not null,
    location {name} not null,
    id {name} not null,
    config text not null,
    state text not null,
    last_trial bigint not null,
    created_us bigint not null,
    primary key (project, location, id)
);

create table study_trials (
    project {name} not null,
    location {name} not null,
    study {name} not null,
    number bigint not null,
    state text not null,
    client text not null,
    point text not null,
    final text,
    infeasible integer not null,
    infeasible_reason text not null,
    started_us bigint not null,
    ended_us bigint not null,
    generation bigint not null,
    primary key (project, location, study, number)
);

create table study_measurements (
    project {name} not null,
    location {name} not null,
    study {name} not null,
    trial bigint not null,
    step bigint not null,
    elapsed_us bigint not null,
    metrics text not null,
    primary key (project, location, study, trial, step, elapsed_us)
);

create table study_operations (
    project {name} not null,
    location {name} not null,
    id {name} not null,
    study {name} not null,
    body text not null,
    created_us bigint not null,
    primary key (project, location, id)
);

create index study_operations_oldest on study_operations (created_us);
