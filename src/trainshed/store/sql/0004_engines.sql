-- Where a job runs is settled when it is created. What was there before ran on this machine.

alter table jobs add column engine text not null default 'local';
