"""HTTP: the route table and the routes."""
