"""Commands that run on the user's machine without a server."""
