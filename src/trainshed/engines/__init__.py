"""Where replicas and hosts run."""
