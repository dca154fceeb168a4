"""Protocols of other model servers: how they say what ml v1 says."""
