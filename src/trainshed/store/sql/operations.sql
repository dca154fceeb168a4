-- insert_operation
insert into operations (project, id, metadata, done, error, response, created_us, generation, order_us)
values (:project, :id, :metadata, :done, :error, :response, :created_us, 1,
        (select case when max(order_us) > cast(:created_us as bigint) then max(order_us) + 1
                     else cast(:created_us as bigint) end from operations));

-- get_operation
select * from operations where project = :project and id = :id;

-- update_operation
update operations
   set metadata = :metadata, done = :done, error = :error, response = :response, generation = generation + 1
 where project = :project and id = :id and generation = :generation;

-- list_operations
select * from operations
 where project = :project and (order_us, id) < (:before_us, :before_id)
 order by order_us desc, id desc limit :limit;

-- insert_if_free
insert into operations (project, id, metadata, done, error, response, created_us, generation, order_us)
values (:project, :id, :metadata, :done, :error, :response, :created_us, 1,
        (select case when max(order_us) > cast(:created_us as bigint) then max(order_us) + 1
                     else cast(:created_us as bigint) end from operations))
    on conflict (project, id) do nothing;
