"""The command line. A command parses, calls the client and prints: data to stdout, messages to stderr."""

from trainshed.cli.commands import main

__all__ = ["main"]
