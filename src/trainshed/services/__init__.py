"""What the API can do, one module for each resource."""
