"""Buckets in clouds: S3 and Cloud Storage behind the contract of all backends."""
