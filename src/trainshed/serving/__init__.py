"""Shipped; NumPy. What a host is: the process that serves one version."""
