"""Jobs: create, search, progress, failures, exports, chaos."""
