-- Rollouts of models: the one that is running, and those that have ended.

alter table models add column rollout text not null default '';

alter table models add column past_rollouts text not null default '';
