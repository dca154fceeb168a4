"""Bayesian search with NumPy. Runs in a process of its own, which the server starts: the server has no NumPy."""
