-- get_policy
select bindings, generation from policies where resource = :resource;

-- insert_policy
insert into policies (resource, bindings, generation) values (:resource, :bindings, 1);

-- update_policy
update policies set bindings = :bindings, generation = generation + 1
 where resource = :resource and generation = :generation;

-- delete_policy
delete from policies where resource = :resource;
