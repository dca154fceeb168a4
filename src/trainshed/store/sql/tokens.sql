-- insert_token
insert into tokens (id, hash, parent, user_name, project, role, label, created_us, expires_us, revoked_us, public_key)
values (:id, :hash, :parent, :user_name, :project, :role, :label, :created_us, :expires_us, null, :public_key);

-- keys_of
select tokens.*, users.disabled_us from tokens left join users on users.name = tokens.user_name
where user_name = :user_name and project = :project and public_key <> '' and revoked_us is null
order by tokens.created_us desc, id limit 20;

-- token_of_hash
select tokens.*, users.disabled_us from tokens left join users on users.name = tokens.user_name where hash = :hash;

-- list_tokens
select tokens.*, users.disabled_us from tokens left join users on users.name = tokens.user_name
where (project = :project or :project = '*') order by tokens.created_us, id;

-- revoke_token
update tokens set revoked_us = :now_us where (id = :id or parent = :id) and revoked_us is null;

-- prolong_token
update tokens set expires_us = :expires_us where id = :id and revoked_us is null and expires_us > :now_us;

-- get_token
select tokens.*, users.disabled_us from tokens left join users on users.name = tokens.user_name where id = :id;

-- forget_expired
delete from tokens where expires_us < :before_us;

-- forget_older
delete from tokens where parent = :parent and label = :label and id not in (
  select id from tokens where parent = :parent and label = :label order by created_us desc, id limit :most
);
