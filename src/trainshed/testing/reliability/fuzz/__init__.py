"""Generated requests for every route, and mutated bytes for every parser of what strangers send."""
