-- The first schema. Times are microseconds since 1970; bodies are JSON text.

create table projects (
    id {name} primary key,
    number bigint not null unique,
    created_us bigint not null
);

create table tokens (
    id {name} primary key,
    hash text not null unique,
    parent {name} not null,
    user_name text not null,
    project {name} not null,
    role text not null,
    label text not null,
    created_us bigint not null,
    expires_us bigint,
    revoked_us bigint
);

create table jobs (
    project {name} not null,
    id {name} not null,
    body text not null,
    labels text not null,
    state text not null,
    priority integer not null,
    attempt integer not null,
    runtime text not null,
    created_us bigint not null,
    started_us bigint,
    ended_us bigint,
    failure text,
    generation bigint not null,
    primary key (project, id)
);

create index jobs_newest on jobs (project, created_us desc, id desc);

create index jobs_live on jobs (state, priority desc, created_us, id)
    where state in ('QUEUED', 'PREPARING', 'RUNNING', 'CANCELLING');

create table job_events (
    seq {serial},
    project {name} not null,
    job {name} not null,
    time_us bigint not null,
    kind text not null,
    subject text not null,
    severity text not null,
    message text not null
);

create index job_events_of on job_events (project, job, seq);

create table policies (
    resource {name} primary key,
    bindings text not null,
    generation bigint not null
);

create table operations (
    project {name} not null,
    id {name} not null,
    metadata text not null,
    done integer not null,
    error text,
    response text,
    created_us bigint not null,
    generation bigint not null,
    primary key (project, id)
);

create table buckets (
    name {name} primary key,
    project {name} not null,
    location text not null,
    storage_class text not null,
    labels text not null,
    created_us bigint not null,
    updated_us bigint not null,
    metageneration bigint not null
);

create index buckets_of on buckets (project, name);
