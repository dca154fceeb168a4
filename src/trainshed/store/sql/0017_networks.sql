-- The network of user code, of projects that have another than the server's setting says.

create table networks (
    project {name} not null,
    access {name} not null,
    primary key (project)
);
