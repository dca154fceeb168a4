"""`trainshed models`, `versions`, `predict`, `explain` and `operations`."""
