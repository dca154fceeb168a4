create table audit (
    id {serial},
    time_us bigint not null,
    project {name} not null,
    user_name text not null,
    address text not null,
    method text not null,
    resource text not null,
    outcome text not null,
    times bigint not null
);

create index audit_by_project on audit (project, time_us, id);

create index audit_by_time on audit (time_us, id);

update tokens set role = 'job' where role = 'editor' and user_name like 'job:%';
