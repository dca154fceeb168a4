"""Remote replicas: the replica proxy beside the supervisor; agent, setup and fetch on the node."""
