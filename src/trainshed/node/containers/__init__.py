"""Podman and Docker by their command line: the tool, images, a replica in a container."""
