"""Checks of URIs in requests: whether the object exists, in a bucket of the same project."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainshed.buckets.names import components, split_uri
from trainshed.errors import InvalidArgumentError, NotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class UriChecker:
    """Checks URIs for one project. Buckets of other projects count as missing."""

    bucket_owner: Callable[[str], str]  #: returns the project of a bucket; raises `NotFoundError`
    object_exists: Callable[[str, str], bool]
    folder_holds_files: Callable[[str, str], bool]  #: whether a folder of a bucket has any object
    matches: Callable[[str, str], bool]  #: whether any object of a bucket matches a pattern
    cloud_of: Callable[[str], str]  #: the cloud URL of a bucket, such as s3://lab-data/mnist; "" if it is a folder

    def owns(self, project: str, bucket: str) -> bool:
        try:
            return self.bucket_owner(bucket) == project
        except NotFoundError:
            return False

    def object_readable(self, project: str, uri: str, *, field: str) -> bool:
        """Return whether the object exists. Raises `InvalidArgumentError` if `uri` is no gs:// URI."""
        bucket, name = parse_uri(uri, field=field)
        return name != "" and self.owns(project, bucket) and self.object_exists(bucket, name)

    def folder_readable(self, project: str, uri: str, *, field: str) -> bool:
        """Return whether the folder has any object. Raises `InvalidArgumentError` if `uri` is no gs:// URI."""
        bucket, name = parse_uri(uri, field=field)
        return self.owns(project, bucket) and self.folder_holds_files(bucket, name)

    def matched(self, project: str, uri: str, *, field: str) -> bool:
        """Return whether any object matches the pattern. Raises `InvalidArgumentError` if `uri` is no gs:// URI."""
        bucket, pattern = parse_uri(uri, field=field)
        return self.owns(project, bucket) and self.matches(bucket, pattern)


def parse_uri(uri: str, *, field: str) -> tuple[str, str]:
    """Return bucket and object of a URI; the object is "" for the bucket itself.

    Raises `InvalidArgumentError` if it is no gs:// URI.
    """
    try:
        bucket, name = split_uri(uri)
        if name:
            components(name)
    except InvalidArgumentError as exc:
        raise InvalidArgumentError(str(exc), field=field) from None
    return bucket, name
