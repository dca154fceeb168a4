"""What runs on the user's own machine without a server."""
