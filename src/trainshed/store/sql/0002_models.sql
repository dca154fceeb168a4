-- Models and their versions.

create table models (
    project {name} not null,
    id {name} not null,
    body text not null,
    labels text not null,
    default_version {name} not null,
    previous_version {name} not null,
    split text not null,
    created_us bigint not null,
    generation bigint not null,
    primary key (project, id)
);

create index models_newest on models (project, created_us desc, id desc);

create table versions (
    project {name} not null,
    model {name} not null,
    id {name} not null,
    body text not null,
    labels text not null,
    state text not null,
    error text not null,
    files {name} not null,
    details text not null,
    operation {name} not null,
    created_us bigint not null,
    generation bigint not null,
    primary key (project, model, id)
);

create index versions_newest on versions (project, model, created_us desc, id desc);

create index versions_of_files on versions (project, files);
