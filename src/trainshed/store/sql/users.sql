-- ensure_user
insert into users (name, kind, created_us, disabled_us) values (:name, :kind, :created_us, null)
on conflict (name) do nothing;

-- get_user
select * from users where name = :name;

-- list_users
select * from users order by name;

-- disable_user
update users set disabled_us = :now_us where name = :name and disabled_us is null;

-- enable_user
update users set disabled_us = null where name = :name;

-- other_owners
select count(*) as owners from tokens
left join users on users.name = tokens.user_name
where tokens.role = 'owner' and tokens.project = '*' and tokens.parent = ''
  and tokens.revoked_us is null and (tokens.expires_us is null or tokens.expires_us > :now_us)
  and users.disabled_us is null
  and tokens.user_name <> :except_user and tokens.id <> :except_token;
