"""Trainshed: the ML Engine you own."""

__version__ = "0.1.0"
