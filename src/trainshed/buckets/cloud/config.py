"""Cloud buckets of the operator: the tables `[buckets.NAME]` of config.toml."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainshed.buckets.cloud.backend import CloudClient
from trainshed.buckets.cloud.gcs import GcsClient
from trainshed.buckets.cloud.s3 import S3Client
from trainshed.buckets.names import bucket_name
from trainshed.domain import names
from trainshed.errors import CannotProceedError, InvalidArgumentError

_CLOUDS: Mapping[str, Callable[[str, str], CloudClient]] = {"s3": S3Client, "gs": GcsClient}
_URL = re.compile(r"([a-z0-9]+)://[a-z0-9][a-z0-9._-]+(?:/[^\s?#]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudBucketConfig:
    """A cloud bucket: its name, URL and project."""

    name: str
    url: str
    project: str

    @property
    def kind(self) -> str:
        return self.url.partition(":")[0]

    def cloud(self) -> CloudClient:
        """A client for it. Makes no request. Raises `CannotProceedError` if the package it needs is not installed."""
        return _CLOUDS[self.kind](self.name, self.url)


def read_cloud_buckets(tables: Mapping[str, Any], *, default_project: str) -> tuple[CloudBucketConfig, ...]:
    """Read the tables `[buckets.NAME]`. Raises `CannotProceedError`, which names the table, if one is invalid."""
    return tuple(_read(name, table, default_project) for name, table in tables.items())


def _read(name: str, table: Any, default_project: str) -> CloudBucketConfig:
    where = f"[buckets.{name}] in config.toml"
    try:
        bucket_name(name)
    except InvalidArgumentError as exc:
        raise CannotProceedError(f"{where}: {exc}") from exc
    if not isinstance(table, Mapping) or set(table) - {"url", "project"} or not isinstance(table.get("url"), str):
        raise CannotProceedError(
            f'{where} must have a url, such as "s3://lab-data/mnist", and can have project, and nothing else.'
        )
    match = _URL.fullmatch(table["url"])
    if match is None or match[1] not in _CLOUDS:
        expected = " or ".join(f"{kind}://BUCKET/FOLDER" for kind in _CLOUDS)
        raise CannotProceedError(f"{where}: the url is {table['url']!r}; it must be {expected}.")
    try:
        project = names.project_id(str(table.get("project", default_project)))
    except InvalidArgumentError as exc:
        raise CannotProceedError(f"{where}: {exc}") from exc
    return CloudBucketConfig(name=name, url=table["url"], project=project)
