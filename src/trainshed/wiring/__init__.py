"""The composition root: the one place where all parts meet."""
