-- Labels are looked through as lines of KEY=VALUE: neither holds any of the signs that are replaced. A body begins with
-- the key that tells its kind. {and_labels} is a condition for each label that is asked for. "!" makes the sign behind it an ordinary one.

-- page
select * from jobs
 where project = :project and parent = '' and (order_us, id) < (:before_us, :before_id) and state in :states
   and (:pattern = '%' or lower(id) like :pattern escape '!'
        or replace(replace(replace(replace(labels, '{"', ''), '":"', '='), '","', '
'), '"}', '') like :pattern escape '!')
   and body like :body escape '!' {and_labels}
 order by order_us desc, id desc limit :limit;

-- counts
select state, count(*) as found from jobs
 where project = :project and parent = ''
   and (:pattern = '%' or lower(id) like :pattern escape '!'
        or replace(replace(replace(replace(labels, '{"', ''), '":"', '='), '","', '
'), '"}', '') like :pattern escape '!')
   and body like :body escape '!' {and_labels}
 group by state;

-- counts_of_all
select state, count(*) as found from jobs where project = :project and parent = '' group by state;

-- counts_of_all_projects
select state, count(*) as found from jobs group by state;

-- counts_ended
select state, count(*) as found from jobs
 where project = :project and parent = '' and state in ('SUCCEEDED', 'FAILED') and ended_us >= :since_us group by state;

-- failed_since
select * from jobs
 where project = :project and parent = '' and state = 'FAILED' and ended_us >= :since_us
 order by ended_us desc, id limit :limit;
