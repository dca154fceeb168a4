"""Buckets without objects, before they are deleted: whether one is, and the empty folders in it."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path

from trainshed.buckets.dirfd import open_directory, prune_below
from trainshed.buckets.listing import list_page
from trainshed.domain.objects import ListQuery
from trainshed.domain.work_budget import WorkBudget
from trainshed.errors import ConflictError


def refuse_objects(root: Path, bucket: str, budget: WorkBudget) -> None:
    """Raises `ConflictError` if a bucket has objects. Raises what `WorkBudget.check` raises."""
    query = ListQuery(limit=1, checksums=False)
    while True:
        page = list_page(root, bucket, query, budget)
        if page.items:
            raise ConflictError("The bucket you tried to delete is not empty.")
        budget.check(0)
        if not page.next:
            return
        query = replace(query, after=page.next)


def clear_empty_folders(root: Path, bucket: str, budget: WorkBudget, *, lock: AbstractContextManager[object]) -> None:
    """Remove the empty folders of a bucket. Raises what `refuse_objects` raises. See `prune_below` about the lock."""
    refuse_objects(root, bucket, budget)
    with suppress(FileNotFoundError), open_directory(root, (bucket,)) as folder:
        prune_below(folder, lock=lock, check=lambda: budget.check(0))
