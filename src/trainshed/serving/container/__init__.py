"""A host that forwards requests to a container."""
