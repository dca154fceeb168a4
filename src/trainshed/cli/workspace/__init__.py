"""`trainshed shell`, `notebook`, `tensorboard`, `samples`, and what gcloud and gsutil mean in the shell."""
