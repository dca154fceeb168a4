"""Jobs, models and data that tests submit and deploy."""
