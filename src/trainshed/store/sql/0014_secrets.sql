-- Secrets, encrypted with a key that is not in the database.

create table secrets (
    project {name} not null,
    name {name} not null,
    key_id {name} not null,
    sealed text not null,
    user_name {name} not null,
    updated_us bigint not null,
    primary key (project, name)
);
