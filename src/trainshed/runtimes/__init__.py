"""Runtime versions, and the environments that uv builds for them."""
