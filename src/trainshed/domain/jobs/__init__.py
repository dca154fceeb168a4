"""What a job is, what it asks for and what it may become."""
