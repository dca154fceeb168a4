"""Packages and model files staged for remote nodes: copies by digest, and manifests."""
