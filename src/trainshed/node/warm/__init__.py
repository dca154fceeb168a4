"""The warm process: preload, fork, and whether a job may start warm."""
