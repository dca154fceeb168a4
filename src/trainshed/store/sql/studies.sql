-- insert_study
insert into studies (project, location, id, config, state, last_trial, created_us)
values (:project, :location, :id, :config, :state, 0, :created_us);

-- get_study
select * from studies where project = :project and location = :location and id = :id;

-- list_studies
select * from studies where project = :project and location = :location order by created_us desc, id;

-- page_of_studies
select * from studies
 where project = :project and (created_us < :before_us or (created_us = :before_us and location || '/' || id > :before_id))
 order by created_us desc, location || '/' || id limit :limit;

-- update_study
update studies set state = :state, last_trial = :last_trial
 where project = :project and location = :location and id = :id and last_trial = :old_last_trial;

-- delete_study
delete from studies where project = :project and location = :location and id = :id;

-- delete_trials_of_study
delete from study_trials where project = :project and location = :location and study = :id;

-- delete_measurements_of_study
delete from study_measurements where project = :project and location = :location and study = :id;

-- delete_operations_of_study
delete from study_operations where project = :project and location = :location and study = :id;

-- insert_trial
insert into study_trials (project, location, study, number, state, client, point, final, infeasible,
                          infeasible_reason, started_us, ended_us, generation)
values (:project, :location, :study, :number, :state, :client, :point, :final, :infeasible,
        :infeasible_reason, :started_us, :ended_us, 1);

-- get_trial
select * from study_trials where project = :project and location = :location and study = :study and number = :number;

-- list_trials
select * from study_trials where project = :project and location = :location and study = :study order by number;

-- update_trial
update study_trials
   set state = :state, client = :client, final = :final, infeasible = :infeasible,
       infeasible_reason = :infeasible_reason, started_us = :started_us, ended_us = :ended_us,
       generation = generation + 1
 where project = :project and location = :location and study = :study and number = :number
   and generation = :generation;

-- delete_trial
delete from study_trials where project = :project and location = :location and study = :study and number = :number;

-- put_measurement
insert into study_measurements (project, location, study, trial, step, elapsed_us, metrics)
values (:project, :location, :study, :trial, :step, :elapsed_us, :metrics)
    on conflict (project, location, study, trial, step, elapsed_us) do update set metrics = excluded.metrics;

-- list_measurements
select trial, step, elapsed_us, metrics from study_measurements
 where project = :project and location = :location and study = :study order by trial, step, elapsed_us;

-- list_measurements_of_trial
select trial, step, elapsed_us, metrics from study_measurements
 where project = :project and location = :location and study = :study and trial = :trial order by step, elapsed_us;

-- delete_measurements_of_trial
delete from study_measurements
 where project = :project and location = :location and study = :study and trial = :number;

-- insert_operation
insert into study_operations (project, location, id, study, body, created_us)
values (:project, :location, :id, :study, :body, :created_us);

-- get_operation
select body from study_operations where project = :project and location = :location and id = :id;

-- delete_old_operations
delete from study_operations where created_us < :before_us;
