"""Searches whose processes are killed at random moments. `python -m` of this package runs them."""
