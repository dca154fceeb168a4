"""Rows of studies and of what belongs to them."""
