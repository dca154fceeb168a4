"""Machine types, and whether a gang fits the nodes of a cluster."""
