"""Implementations that behave, in place of a process, a cluster or a cloud."""
