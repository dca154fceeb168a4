"""The data plane: from a prediction request to a host and back."""
