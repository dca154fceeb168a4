"""`trainshed shell`: its environment, and the command lines of gcloud, gsutil, datalab and git in it."""
