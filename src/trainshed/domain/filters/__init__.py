"""The filter language of list methods and log queries."""
