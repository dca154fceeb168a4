-- insert_model
insert into models (project, id, body, labels, default_version, previous_version, split, rollout, past_rollouts,
                    created_us, generation, order_us)
values (:project, :id, :body, :labels, :default_version, :previous_version, :split, :rollout, :past_rollouts,
        :created_us, 1,
        (select case when max(order_us) > cast(:created_us as bigint) then max(order_us) + 1
                     else cast(:created_us as bigint) end from models));

-- get_model
select * from models where project = :project and id = :id;

-- lock_model
select id from models where project = :project and id = :id for update;

-- update_model
update models
   set body = :body, labels = :labels, default_version = :default_version, previous_version = :previous_version,
       split = :split, rollout = :rollout, past_rollouts = :past_rollouts, generation = generation + 1
 where project = :project and id = :id and generation = :generation;

-- delete_model
delete from models where project = :project and id = :id;

-- list_models
select * from models
 where project = :project and (order_us, id) < (:before_us, :before_id)
 order by order_us desc, id desc limit :limit;

-- defaults_of_list
select versions.* from versions
  join (select project, id, default_version from models
         where project = :project and (order_us, id) < (:before_us, :before_id)
         order by order_us desc, id desc limit :limit) as listed
    on versions.project = listed.project and versions.model = listed.id and versions.id = listed.default_version;

-- insert_version
insert into versions (project, model, id, body, labels, state, error, files, details, operation, created_us, generation, order_us)
values (:project, :model, :id, :body, :labels, :state, :error, :files, :details, :operation, :created_us, 1,
        (select case when max(order_us) > cast(:created_us as bigint) then max(order_us) + 1
                     else cast(:created_us as bigint) end from versions));

-- get_version
select * from versions where project = :project and model = :model and id = :id;

-- versions_of
select * from versions where project = :project and model = :model order by order_us, id;

-- update_version
update versions
   set body = :body, labels = :labels, state = :state, error = :error, files = :files, details = :details,
       operation = :operation, generation = generation + 1
 where project = :project and model = :model and id = :id and generation = :generation;

-- delete_version
delete from versions where project = :project and model = :model and id = :id and generation = :generation;

-- list_versions
select * from versions
 where project = :project and model = :model and (order_us, id) < (:before_us, :before_id)
 order by order_us desc, id desc limit :limit;

-- every_model
select * from models order by project, id;

-- models_rolling_out
select * from models where rollout <> '' order by project, id;

-- versions_to_serve
select * from versions where state <> 'FAILED' order by order_us, project, model, id;

-- versions_with_files
select count(*) as found from versions
where project = :project and files = :files and not (model = :model and id = :version);

-- names_of_models
select id, default_version from models where project = :project order by order_us desc, id desc limit :limit;

-- states_of_versions
select model, id, state, error from versions where project = :project order by order_us desc, model, id;
