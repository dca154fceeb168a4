-- put_secret
insert into secrets (project, name, key_id, sealed, user_name, updated_us)
values (:project, :name, :key_id, :sealed, :user_name, :updated_us)
on conflict (project, name) do update
   set key_id = excluded.key_id, sealed = excluded.sealed, user_name = excluded.user_name,
       updated_us = excluded.updated_us;

-- secrets_of
select * from secrets where project = :project order by name;

-- all_secrets
select * from secrets order by project, name;

-- delete_secret
delete from secrets where project = :project and name = :name;

-- reseal_secret
update secrets set key_id = :key_id, sealed = :sealed
 where project = :project and name = :name and key_id = :old_key_id and sealed = :old_sealed;
