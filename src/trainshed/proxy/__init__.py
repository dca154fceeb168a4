"""Interception of Google's hosts: requests for them are answered by this server."""
