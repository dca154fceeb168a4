"""Files on this machine or in a bucket, and the arrays that a training keeps in them."""

import gzip
import io
import os

import numpy as np

PREFIX = "gs://"
SIDE = 28


def _blob(uri):
    from google.cloud import storage

    bucket, _, name = uri[len(PREFIX) :].partition("/")
    return storage.Client().bucket(bucket).blob(name)


def read(path):
    """The content of a file. None if it is not there."""
    if path.startswith(PREFIX):
        blob = _blob(path)
        return blob.download_as_bytes() if blob.exists() else None
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return file.read()


def write(path, content):
    """Write a file, whole or not at all: a replica that is killed leaves the one before."""
    if path.startswith(PREFIX):
        _blob(path).upload_from_string(content)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".draft", "wb") as file:
        file.write(content)
    os.replace(path + ".draft", path)


def save_arrays(path, arrays):
    content = io.BytesIO()
    np.savez(content, **arrays)
    write(path, content.getvalue())


def load_arrays(path):
    """The arrays in a file, by name. None if it is not there."""
    content = read(path)
    return None if content is None else dict(np.load(io.BytesIO(content)))


def read_mnist(folder, part):
    """The images (numbers from 0 to 1) and digits of `train` or `t10k`, from MNIST's own files."""
    arrays = []
    for kind, header in (("images-idx3", 16), ("labels-idx1", 8)):
        path = os.path.join(folder, "%s-%s-ubyte.gz" % (part, kind))
        content = read(path)
        if content is None:
            raise SystemExit("There is no file %s. Upload MNIST's four files to --data_dir." % path)
        arrays.append(np.frombuffer(gzip.decompress(content), np.uint8, offset=header))
    images, digits = arrays
    return images.reshape(-1, SIDE * SIDE).astype(np.float32) / 255, digits.astype(np.int32)
