"""Checks of URIs in requests: whether the object exists, in a bucket of the same project."""

from __future__ import annotations

from dataclasses import dataclass

from trainshed.buckets.backend import BackendRouter
from trainshed.buckets.names import components, split_uri
from trainshed.domain.work_budget import WorkBudget
from trainshed.errors import InvalidArgumentError, NotFoundError
from trainshed.services.storage.buckets import Buckets
from trainshed.services.storage.objects import Objects


@dataclass(frozen=True, slots=True, kw_only=True)
class UriChecker:
    """Checks URIs for one project. Buckets of other projects count as missing."""

    buckets: Buckets
    objects: Objects
    backend: BackendRouter

    def cloud_of(self, bucket: str) -> str:
        """Return the URL of a cloud bucket, such as s3://lab-data/mnist. Returns "" for a local bucket."""
        return self.backend.cloud_of(bucket)

    def is_in_cloud(self, uri: object) -> bool:
        """Return whether the URI is of a cloud bucket. Returns False for an invalid one."""
        try:
            return isinstance(uri, str) and self.backend.cloud_of(split_uri(uri)[0]) != ""
        except InvalidArgumentError:
            return False

    def owns(self, project: str, bucket: str) -> bool:
        try:
            return self.buckets.owner(bucket) == project
        except NotFoundError:
            return False

    def object_readable(self, project: str, uri: str, *, field: str, budget: WorkBudget) -> bool:
        """Return whether the object exists. Raises `InvalidArgumentError` if `uri` is no gs:// URI.

        Raises what `WorkBudget.check` raises, as the others do.
        """
        budget.check(0)
        bucket, name = parse_uri(uri, field=field)
        return name != "" and self.owns(project, bucket) and self.objects.exists(bucket, name)

    def folder_readable(self, project: str, uri: str, *, field: str, budget: WorkBudget) -> bool:
        """Return whether the folder has any object. Raises `InvalidArgumentError` if `uri` is no gs:// URI."""
        bucket, name = parse_uri(uri, field=field)
        return self.owns(project, bucket) and self.objects.folder_holds_files(bucket, name, budget)

    def matched(self, project: str, uri: str, *, field: str, budget: WorkBudget) -> bool:
        """Return whether any object matches the pattern. Raises `InvalidArgumentError` if `uri` is no gs:// URI."""
        bucket, pattern = parse_uri(uri, field=field)
        return self.owns(project, bucket) and self.objects.matches(bucket, pattern, budget)


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
