"""Rows of buckets: names and owners. `trainshed.buckets` has the objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
import sqlalchemy as sa

from trainshed.domain.objects import Bucket, bucket_not_found
from trainshed.domain.storage.rules import BucketRules
from trainshed.errors import AlreadyExistsError, WriteConflictError
from trainshed.store.database import Database, is_duplicate, load_queries

QUERY = load_queries("buckets")


class BucketStore:
    """Rows of buckets. Each write is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, bucket: Bucket) -> Bucket:
        """Store a new bucket. Raises `AlreadyExistsError` if any project has one of that name."""
        try:
            with self._database.write() as tx:
                tx.run(QUERY["insert_bucket"], _values(bucket))
        except sa.exc.IntegrityError as exc:
            if not is_duplicate(exc):
                raise
            raise bucket_exists(bucket.name) from exc
        return bucket

    def get(self, name: str) -> Bucket:
        with self._database.read() as tx:
            rows = tx.rows(QUERY["get_bucket"], {"name": name})
        if not rows:
            raise bucket_not_found(name)
        return bucket_from_row(rows[0])

    def rules(self, name: str) -> BucketRules:
        """The rules for objects of a bucket. One that is not there has none."""
        with self._database.read() as tx:
            rows = tx.rows(QUERY["bucket_settings"], {"name": name})
        return BucketRules.of(orjson.loads(rows[0]["settings"])) if rows else BucketRules()

    def lifecycles(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """The names of all buckets with lifecycle rules, and the rules."""
        with self._database.read() as tx:
            rows = [(row["name"], orjson.loads(row["settings"])) for row in tx.rows(QUERY["buckets_with_lifecycle"])]
        return [(name, settings["lifecycle"]) for name, settings in rows if "lifecycle" in settings]

    def names(self) -> Sequence[str]:
        """The names of all buckets of all projects."""
        with self._database.read() as tx:
            return [row["name"] for row in tx.rows(QUERY["bucket_names"])]

    def page(self, project: str, *, prefix: str, after: str, limit: int) -> Sequence[Bucket]:
        """Up to `limit` buckets of a project with names after `after` that start with `prefix`, in byte order."""
        values = {"project": project, "after": after, "prefix": prefix, "length": len(prefix), "limit": limit}
        with self._database.read() as tx:
            return [bucket_from_row(row) for row in tx.rows(QUERY["list_buckets"], values)]

    def record(self, bucket: Bucket) -> Bucket:
        """Write a changed bucket. Raises `WriteConflictError` if the row changed since it was read."""
        with self._database.write() as tx:
            if tx.run(QUERY["update_bucket"], _values(bucket)) == 0:
                raise WriteConflictError(f"The bucket {bucket.name} was changed by someone else; read it again.")
        return replace(bucket, metageneration=bucket.metageneration + 1)

    def delete(self, name: str) -> None:
        with self._database.write() as tx:
            if tx.run(QUERY["delete_bucket"], {"name": name}) == 0:
                raise bucket_not_found(name)


def bucket_exists(name: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"A bucket named {name} exists already. Bucket names are shared by all projects: choose another."
    )


def bucket_from_row(row: Mapping[str, Any]) -> Bucket:
    return Bucket(**{**row, "labels": orjson.loads(row["labels"]), "settings": orjson.loads(row["settings"])})


def _values(bucket: Bucket) -> dict[str, Any]:
    return {
        "name": bucket.name,
        "project": bucket.project,
        "location": bucket.location,
        "storage_class": bucket.storage_class,
        "labels": orjson.dumps(bucket.labels).decode(),
        "settings": orjson.dumps(bucket.settings).decode(),
        "created_us": bucket.created_us,
        "updated_us": bucket.updated_us,
        "metageneration": bucket.metageneration,
    }
