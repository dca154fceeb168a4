"""Processes: spawn, exit status, process tree, reaper, resource sampler."""
