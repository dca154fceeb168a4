"""Reading logs: of one job in pages, of all jobs as entries."""
