"""`trainshed buckets`."""
