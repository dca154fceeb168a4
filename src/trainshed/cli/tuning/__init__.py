"""The `tuning` group: searches of tuning jobs."""
