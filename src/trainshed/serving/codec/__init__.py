"""JSON to arrays and back."""
