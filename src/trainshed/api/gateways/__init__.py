"""Several gateway processes on one port: each answers predictions, and passes every other connection to the server."""
