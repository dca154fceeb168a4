-- The settings of a bucket besides labels and storage class, as JSON: versioning, retention and the like.

alter table buckets add column settings text not null default '{}';
