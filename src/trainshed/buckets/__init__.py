"""Objects: the backend contract, files and clouds, uploads, listing, glob patterns."""
