-- steering_of
select max_trials, max_parallel, finish from search_steering where project = :project and job = :job;

-- points_of
select number, point from own_points where project = :project and job = :job order by number;

-- set_steering
insert into search_steering (project, job, max_trials, max_parallel, finish)
values (:project, :job, :max_trials, :max_parallel, :finish)
on conflict (project, job) do update
   set max_trials = coalesce(excluded.max_trials, search_steering.max_trials),
       max_parallel = coalesce(excluded.max_parallel, search_steering.max_parallel),
       finish = case when search_steering.finish = '' then excluded.finish else search_steering.finish end;

-- touch_job
update jobs set generation = generation + 1 where project = :project and id = :job;

-- next_number
select coalesce(max(number), 0) + 1 as number from own_points where project = :project and job = :job;

-- insert_point
insert into own_points (project, job, number, point) values (:project, :job, :number, :point);

-- delete_point
delete from own_points where project = :project and job = :job and number = :number;
