"""The command line. A command parses, calls the client and prints: data on stdout, words on stderr."""

from trainshed.cli.commands import main

__all__ = ["main"]
