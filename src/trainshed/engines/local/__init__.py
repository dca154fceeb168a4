"""The engine of this machine: supervisors, hosts, warm processes, containers."""
