"""Crash points of the program, and scenarios that pass them."""
