"""gs:// on this machine without a server: the buckets of the state folder are plain folders."""

from __future__ import annotations

from pathlib import Path

from trainshed.buckets.names import object_path, split_uri
from trainshed.config import Home
from trainshed.domain.uris import resolve_uris
from trainshed.errors import InvalidArgumentError, NotFoundError


class LocalBuckets:
    """Resolves gs:// URIs to paths. `unknown` collects those whose bucket does not exist."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._clouds = home.file_settings().get("buckets", {})
        self.unknown: list[str] = []

    def resolve(self, text: str) -> str:
        """Replace every gs:// URI of an existing bucket in the text by its path."""
        return resolve_uris(text, self._path_of)

    def folder(self, uri: str) -> Path:
        """Return the path of a URI, which may not exist yet.

        Raises `InvalidArgumentError` or `NotFoundError` if it has none.
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
