"""The job's folder: a path on this machine, or a folder of a bucket, of which PyTorch itself knows nothing."""

import io
import os
import tempfile

import torch

CHECKPOINT = "checkpoint.pt"
PREFIX = "gs://"


class Folder:
    """Checkpoints, summaries and exported models of one job."""

    def __init__(self, path):
        self._path = path.rstrip("/")
        self._is_remote = path.startswith(PREFIX)
        self.summaries = tempfile.mkdtemp() if self._is_remote else self._path  #: where TensorBoard's writer writes

    def save_checkpoint(self, state):
        content = io.BytesIO()
        torch.save(state, content)
        self.write(CHECKPOINT, content.getvalue())

    def last_checkpoint(self):
        """The last saved state. None if there is none."""
        content = self._read(CHECKPOINT)
        return None if content is None else torch.load(io.BytesIO(content), weights_only=True)

    def upload_summaries(self):
        if self._is_remote:
            for name in os.listdir(self.summaries):
                with open(os.path.join(self.summaries, name), "rb") as file:
                    self.write(name, file.read())

    def write(self, name, content):
        """Write a file, whole or not at all: a replica that is killed leaves the one before. Returns where it is."""
        path = "%s/%s" % (self._path, name)
        if self._is_remote:
            blob(path).upload_from_string(content)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path + ".draft", "wb") as file:
                file.write(content)
            os.replace(path + ".draft", path)
        return path

    def _read(self, name):
        path = "%s/%s" % (self._path, name)
        if self._is_remote:
            found = blob(path)
            return found.download_as_bytes() if found.exists() else None
        if not os.path.exists(path):
            return None
        with open(path, "rb") as file:
            return file.read()


def blob(uri):
    """An object of a bucket."""
    from google.cloud import storage

    bucket, _, name = uri[len(PREFIX) :].partition("/")
    return storage.Client().bucket(bucket).blob(name)


def read_file(path):
    """The content of a file, here or in a bucket."""
    if path.startswith(PREFIX):
        return blob(path).download_as_bytes()
    with open(path, "rb") as file:
        return file.read()
