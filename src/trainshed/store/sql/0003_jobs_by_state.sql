-- How many jobs a project has in each state, and how many ended since, are asked every few seconds.

create index jobs_by_state on jobs (project, state, ended_us);
