"""/v1: Google's ml API, and predictions."""
