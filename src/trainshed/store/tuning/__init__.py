"""Rows of studies, and of searches for hyperparameters."""
