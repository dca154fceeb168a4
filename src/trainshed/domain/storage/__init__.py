"""The settings of buckets: what they keep of objects, for how long, and for which pages of other sites."""
