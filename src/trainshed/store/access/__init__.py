"""Rows of limits and of secrets."""
