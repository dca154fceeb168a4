"""Addresses in requests: whether what they name is there, in a bucket of the same project."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainshed.buckets.names import components, split_uri
from trainshed.errors import InvalidArgumentError, NotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class UriChecker:
    """The buckets, as far as one project may know of them. A bucket of another project is as good as absent."""

    bucket_owner: Callable[[str], str]  #: the project of a bucket; `NotFoundError` if there is no such bucket
    object_exists: Callable[[str, str], bool]
    folder_holds_files: Callable[[str, str], bool]  #: whether any object lies below a folder of a bucket
    matches: Callable[[str, str], bool]  #: whether any object of a bucket matches a pattern
    cloud_of: Callable[[str], str]  #: where a bucket is kept, such as s3://lab-data/mnist; empty if it is a folder

    def owns(self, project: str, bucket: str) -> bool:
        try:
            return self.bucket_owner(bucket) == project
        except NotFoundError:
            return False

    def object_readable(self, project: str, uri: str, *, field: str) -> bool:
        """`InvalidArgumentError`, with the field, for what is no gs:// address at all."""
        bucket, name = parse_uri(uri, field=field)
        return name != "" and self.owns(project, bucket) and self.object_exists(bucket, name)

    def folder_readable(self, project: str, uri: str, *, field: str) -> bool:
        """Whether there is at least one object below.

        `InvalidArgumentError`, with the field, for what is no gs:// address.
        """
        bucket, name = parse_uri(uri, field=field)
        return self.owns(project, bucket) and self.folder_holds_files(bucket, name)

    def matched(self, project: str, uri: str, *, field: str) -> bool:
        """Whether there is an object for a pattern.

        `InvalidArgumentError`, with the field, for what is no gs:// address.
        """
        bucket, pattern = parse_uri(uri, field=field)
        return self.owns(project, bucket) and self.matches(bucket, pattern)


def parse_uri(uri: str, *, field: str) -> tuple[str, str]:
    """The bucket and the object that a URI names; no object for the bucket itself.

    `InvalidArgumentError` if it can't be one.
    """
    try:
        bucket, name = split_uri(uri)
        if name:
            components(name)
    except InvalidArgumentError as exc:
        raise InvalidArgumentError(str(exc), field=field) from None
    return bucket, name
