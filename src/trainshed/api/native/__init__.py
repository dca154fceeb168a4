"""/trainshed/v1, /healthz, /token: Trainshed's own API."""
