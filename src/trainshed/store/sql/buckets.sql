-- insert_bucket
insert into buckets (name, project, location, storage_class, labels, settings, created_us, updated_us, metageneration)
values (:name, :project, :location, :storage_class, :labels, :settings, :created_us, :updated_us, 1);

-- get_bucket
select * from buckets where name = :name;

-- bucket_settings
select settings from buckets where name = :name;

-- buckets_with_lifecycle
select name, settings from buckets where settings like '%"lifecycle"%' order by name;

-- bucket_names
select name from buckets order by name;

-- list_buckets
select * from buckets
 where project = :project and name > :after and name >= :prefix and substr(name, 1, :length) = :prefix
 order by name limit :limit;

-- update_bucket
update buckets
   set labels = :labels, storage_class = :storage_class, settings = :settings, updated_us = :updated_us,
       metageneration = metageneration + 1
 where name = :name and metageneration = :metageneration;

-- delete_bucket
delete from buckets where name = :name;
