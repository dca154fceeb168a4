"""A folder on PYTHONPATH of `trainshed shell` and of notebooks: what each Python there runs when it starts."""
