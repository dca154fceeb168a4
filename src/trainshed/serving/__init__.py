"""Shipped; NumPy. The host: the process that serves one version."""
