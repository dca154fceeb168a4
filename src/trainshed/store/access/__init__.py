"""Rows of limits."""
