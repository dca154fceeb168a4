"""Mirrors: objects of public buckets of Cloud Storage that this server has itself, for all projects."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from trainshed.buckets.file_backend import FileBackend
from trainshed.buckets.uploads import UploadSessions
from trainshed.domain.objects import ListQuery, ObjectDraft, ObjectInfo, ObjectMetadata, Preconditions
from trainshed.domain.times import rfc3339
from trainshed.domain.work_budget import WorkBudget
from trainshed.errors import InvalidArgumentError, NotFoundError
from trainshed.services.storage.mnist_archive import mnist_archive
from trainshed.services.storage.objects import ObjectReader, Objects
from trainshed.services.storage.uris import parse_uri

LOG = logging.getLogger("trainshed.public_data")

MNIST = ("tensorflow", "tf-keras-datasets/mnist.npz")
_BUILT_IN = "trainshed-built-in"  #: the metadata of an object that this server made itself
_URL_PREFIXES = ("https://storage.googleapis.com/", "https://storage.cloud.google.com/")


class PublicMirrors:
    """The mirrored objects, in a second set of buckets that belong to no project. Thread-safe."""

    def __init__(self, folder: Path, samples: Callable[[], Path]) -> None:
        """`samples` returns the folder of the samples, whose MNIST files make one built-in mirror."""
        self._root = folder / "buckets"
        self._backend = FileBackend(self._root, folder / "uploads")
        self._backend.sweep()
        self._samples = samples
        self._lock = threading.Lock()
        self.objects = Objects(self._backend, UploadSessions(folder / "uploads"), owner=lambda bucket: "")

    def holds(self, bucket: str, name: str) -> bool:
        """Return whether there is a mirror of this object. Makes a built-in one at its first use, which takes 1 s."""
        if (bucket, name) != MNIST:
            return self.objects.exists(bucket, name)
        with self._lock:
            if not self.objects.exists(bucket, name):
                self._make_mnist()
        return True

    def list(self) -> list[dict[str, Any]]:
        """Return all mirrors by name, the built-in one too."""
        found = [_body(info) for bucket in sorted(self._root.iterdir()) for info in self._objects_of(bucket.name)]
        names = {each["uri"] for each in found}
        built_in = "gs://{}/{}".format(*MNIST)
        if built_in not in names:
            found.append({"uri": built_in, "size": None, "builtIn": True, "updateTime": None})
        return sorted(found, key=lambda each: str(each["uri"]))

    def _objects_of(self, bucket: str) -> Iterator[ObjectInfo]:
        query = ListQuery(checksums=False)
        while True:
            page = self._backend.list(bucket, query)
            yield from page.items
            if not page.next:
                return
            query = replace(query, after=page.next)

    def add(self, uri: str, reader: ObjectReader, budget: WorkBudget) -> dict[str, Any]:
        """Make a mirror of `uri` with the bytes of an object, or replace it."""
        bucket, name = public_name(uri)
        with self._backend.stage() as staged:
            reader.copy_to(staged, budget)  # may take minutes, in which reads of other mirrors must not wait
            with self._lock:
                self._make_bucket(bucket)
                info = self._backend.commit(staged, ObjectDraft(bucket=bucket, name=name, traits=reader.info.traits))
        LOG.info("mirror.added uri=gs://%s/%s bytes=%d", bucket, name, info.size)
        return _body(info)

    def remove(self, uri: str) -> None:
        """Remove a mirror. Raises `NotFoundError` if there is none, and `InvalidArgumentError` for the built-in one."""
        bucket, name = public_name(uri)
        with self._lock:
            info = self._backend.info(bucket, name, checksums=False) if self.objects.exists(bucket, name) else None
            if (bucket, name) == MNIST and (info is None or _is_built_in(info)):
                raise InvalidArgumentError(
                    f"The mirror of gs://{bucket}/{name} is built in. `trainshed mirror add` replaces it.", field="uri"
                )
            if info is None:
                raise NotFoundError(f"There is no mirror of gs://{bucket}/{name}. `trainshed mirror list` shows all.")
            self._backend.delete(bucket, name, Preconditions())
        LOG.info("mirror.removed uri=gs://%s/%s", bucket, name)

    def _make_mnist(self) -> None:
        bucket, name = MNIST
        self._make_bucket(bucket)
        traits = ObjectMetadata(content_type="application/octet-stream", metadata={_BUILT_IN: "true"})
        with self._backend.stage() as staged:
            staged.write(mnist_archive(self._samples() / "data" / "mnist"))
            self._backend.commit(staged, ObjectDraft(bucket=bucket, name=name, traits=traits))

    def _make_bucket(self, bucket: str) -> None:
        if not (self._root / bucket).is_dir():
            self._backend.make_bucket(bucket)


def public_name(uri: str) -> tuple[str, str]:
    """Return the bucket and the object of a gs:// URI, or of the URL of a public object."""
    for prefix in _URL_PREFIXES:
        if uri.startswith(prefix):
            uri = f"gs://{unquote(uri.removeprefix(prefix))}"
    bucket, name = parse_uri(uri, field="uri")
    if not name:
        raise InvalidArgumentError(
            f"A mirror is of one object, such as gs://{bucket}/data/train.csv; {uri!r} names none.", field="uri"
        )
    return bucket, name


def _is_built_in(info: ObjectInfo) -> bool:
    return _BUILT_IN in info.traits.metadata


def _body(info: ObjectInfo) -> dict[str, Any]:
    return {
        "uri": f"gs://{info.bucket}/{info.name}",
        "size": info.size,
        "builtIn": _is_built_in(info),
        "updateTime": rfc3339(info.updated_us),
    }
