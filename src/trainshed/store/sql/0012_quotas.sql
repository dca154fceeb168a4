-- Limits. The project `*` is each project without a limit of its own; an empty user is the project as a whole, and the user
-- `*` each user without a limit of their own.

create table quotas (
    project {name} not null,
    user_name {name} not null,
    name {name} not null,
    value bigint not null,
    primary key (project, user_name, name)
);
