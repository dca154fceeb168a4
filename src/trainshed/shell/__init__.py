"""`trainshed shell`: its environment, and what the words of gcloud, gsutil, datalab and git mean in it."""
