"""Backup and restore of the state folder: what is in a backup, archives, and the timer of the server."""
