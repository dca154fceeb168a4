-- Whether the folder of a trial is kept, is being removed or was removed.

alter table trials add column folder text not null default 'KEPT';

create index trials_removing on trials (project, job, number) where folder = 'REMOVING';
