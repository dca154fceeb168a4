-- insert_trial
insert into trials (project, job, number, point, outcome, stopped) values (:project, :job, :number, :point, '', '');

-- trials_of
select number, point, outcome, stopped, folder from trials
 where project = :project and job = :job and number between :first and :last order by number;

-- jobs_of
select * from jobs
 where project = :project and parent = :job and parent <> '' and trial between :first and :last order by trial;

-- trial_marks
select trials.number, trials.folder, trials.stopped, case when trials.outcome = '' then 0 else 1 end as reported,
       jobs.generation, jobs.passed_over_us
  from trials join jobs on jobs.project = trials.project and jobs.parent = trials.job and jobs.trial = trials.number
 where trials.project = :project and trials.job = :job and jobs.parent <> '' order by trials.number;

-- set_outcome
update trials set outcome = :outcome where project = :project and job = :job and number = :number and outcome = '';

-- set_stopped
update trials set stopped = :stopped where project = :project and job = :job and number = :number and stopped = '';

-- active_tuning_jobs
select * from jobs
 where replicas = 0 and state in ('QUEUED', 'PREPARING', 'RUNNING', 'CANCELLING') order by order_us, id;

-- abandoned_trials
select * from jobs as trial
 where trial.parent <> '' and trial.state in ('QUEUED', 'PREPARING', 'RUNNING')
   and exists (select 1 from jobs as parent where parent.project = trial.project and parent.id = trial.parent
                and parent.state in ('SUCCEEDED', 'FAILED', 'CANCELLED'));

-- set_folder
update trials set folder = :folder where project = :project and job = :job and number = :number and folder = :before;

-- folders_to_remove
select jobs.* from trials
  join jobs on jobs.project = trials.project and jobs.parent = trials.job and jobs.trial = trials.number
 where trials.folder = 'REMOVING' and jobs.parent <> '' order by trials.project, trials.job, trials.number;

-- ended_with_folders
select * from jobs as search
 where project = :project and replicas = 0 and state in ('SUCCEEDED', 'FAILED', 'CANCELLED') and ended_us < :before_us
   and exists (select 1 from trials where trials.project = search.project and trials.job = search.id
                and trials.folder = 'KEPT')
 order by order_us, id;
