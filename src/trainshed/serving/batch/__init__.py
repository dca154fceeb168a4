"""Batch prediction over shards of input files."""
