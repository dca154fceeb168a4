"""`trainshed local`: train and predict without a server."""
