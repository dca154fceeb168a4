"""`trainshed jobs`."""
