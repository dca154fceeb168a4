"""gs:// on this machine without a server: the buckets of the state folder are plain folders."""

from __future__ import annotations

from pathlib import Path

from trainshed.buckets.names import object_path, resolve_uris, split_uri
from trainshed.config import Home
from trainshed.errors import InvalidArgumentError, NotFoundError


class LocalBuckets:
    """Turns addresses into paths. `unknown` collects those whose bucket is not there."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._clouds = home.file_settings().get("buckets", {})
        self.unknown: list[str] = []

    def resolve(self, text: str) -> str:
        """The text with every gs:// address of a bucket that exists replaced by its path."""
        return resolve_uris(text, self._path_of)

    def folder(self, uri: str) -> Path:
        """The path of one address, there already or not.

        `InvalidArgumentError` or `NotFoundError` if it can't have one.
        """
        bucket, name = split_uri(uri)
        if bucket in self._clouds:
            raise NotFoundError(
                f"gs://{bucket} is kept in a cloud, as config.toml says, and has no folder on this machine. Copy "
                f"what you need with `trainshed buckets cp -r`, or leave it to a job of the server."
            )
        if not object_path(self._home.buckets, bucket, "").is_dir():
            raise NotFoundError(
                f"There is no bucket gs://{bucket} in {self._home.path}. `trainshed buckets ls` lists those there are; "
                f"TRAINSHED_HOME chooses another state folder."
            )
        return object_path(self._home.buckets, bucket, name.rstrip("/"))

    def _path_of(self, uri: str) -> Path | None:
        try:
            return self.folder(uri)
        except (InvalidArgumentError, NotFoundError):
            self.unknown.append(uri)
            return None
