create table users (
    name {name} not null primary key,
    kind text not null,
    created_us bigint not null,
    disabled_us bigint
);

insert into users (name, kind, created_us, disabled_us)
select user_name, 'user', min(created_us), null from tokens where user_name not like '%:%' group by user_name;
