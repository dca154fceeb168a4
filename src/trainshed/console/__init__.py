"""The console: plain files that a browser runs."""
