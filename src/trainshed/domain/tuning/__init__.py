"""Hyperparameter search: parameter spaces, what is asked of a search, and its simple algorithms. Without I/O."""
