"""Attributions: the explainer, its metadata, its methods."""
