-- The first schema. Times are microseconds since 1970; bodies are JSON text.

create table projects (
    id text primary key,
    number bigint not null unique,
    created_us bigint not null
);

create table tokens (
    id text primary key,
    hash text not null unique,
    parent text not null,
    user_name text not null,
    project text not null,
    role text not null,
    label text not null,
    created_us bigint not null,
    expires_us bigint,
    revoked_us bigint
);

create table jobs (
    project text not null,
    id text not null,
    body text not null,
    labels text not null,
    state text not null,
    priority integer not null,
    attempt integer not null,
    runtime text not null,
    created_us bigint not null,
    started_us bigint,
    ended_us bigint,
    error text not null,
    generation bigint not null,
    primary key (project, id)
);

create index jobs_newest on jobs (project, created_us desc, id desc);

create index jobs_live on jobs (state, priority desc, created_us, id)
    where state in ('QUEUED', 'PREPARING', 'RUNNING', 'CANCELLING');

create table job_events (
    seq {serial},
    project text not null,
    job text not null,
    time_us bigint not null,
    severity text not null,
    message text not null
);

create index job_events_of on job_events (project, job, seq);

create table policies (
    resource text primary key,
    bindings text not null,
    generation bigint not null
);

create table operations (
    project text not null,
    id text not null,
    metadata text not null,
    done integer not null,
    error text,
    response text,
    created_us bigint not null,
    generation bigint not null,
    primary key (project, id)
);

create table buckets (
    name text primary key,
    project text not null,
    location text not null,
    storage_class text not null,
    labels text not null,
    created_us bigint not null,
    updated_us bigint not null,
    metageneration bigint not null
);

create index buckets_of on buckets (project, name);
