-- all_usage
select project, user_name, slot_seconds, as_of_us from slot_usage;

-- put_usage
insert into slot_usage (project, user_name, slot_seconds, as_of_us)
values (:project, :user_name, :slot_seconds, :as_of_us)
on conflict (project, user_name) do update set slot_seconds = excluded.slot_seconds, as_of_us = excluded.as_of_us;

-- delete_usage
delete from slot_usage where project = :project and user_name = :user_name;
