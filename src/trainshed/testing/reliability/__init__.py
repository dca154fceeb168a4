"""Fault rows of docs/reliability.md, the tests that show them, and figures of long runs."""
