"""A file system that loses what was not synced, for power cuts."""
