-- Keys of service accounts are tokens that prove themselves by a signature.

alter table tokens add column public_key text not null default '';
