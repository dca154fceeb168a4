"""Machines in network namespaces, Ray, Slurm and containers."""
