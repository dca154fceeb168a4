"""Suites of real clients against this server: what each is, how it is run, and the figures of docs/conformance.md."""
