"""Discovery documents: Google's APIs as this server serves them, made from its own routes and readers."""
