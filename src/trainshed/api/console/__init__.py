"""/, /console, /tensorboard: the console's files, sign-in, TensorBoard."""
