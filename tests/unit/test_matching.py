"""Which objects a pattern stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.buckets.matching import matching
from trainshed.buckets.tree import ObjectTree
from trainshed.domain.objects import Draft

NAMES = ("rows/a.json", "rows/b.json", "rows/b.txt", "rows/deep/c.json", "rows.json", "x[1].json")


@pytest.fixture
def tree(tmp_path: Path) -> ObjectTree:
    tree = ObjectTree(tmp_path / "buckets", tmp_path / "uploads")
    for folder in (tmp_path / "buckets", tmp_path / "uploads"):
        folder.mkdir(exist_ok=True)
    tree.make_bucket("mine")
    for name in NAMES:
        with tree.stage() as staged:
            staged.write(b"1")
            tree.commit(staged, Draft(bucket="mine", name=name))
    return tree


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("rows/*", ["rows/a.json", "rows/b.json", "rows/b.txt"]),
        ("rows/*.json", ["rows/a.json", "rows/b.json"]),
        ("rows/?.txt", ["rows/b.txt"]),
        ("rows/**", ["rows/a.json", "rows/b.json", "rows/b.txt", "rows/deep/c.json"]),
        ("rows/", ["rows/a.json", "rows/b.json", "rows/b.txt"]),
        ("rows", ["rows/a.json", "rows/b.json", "rows/b.txt"]),
        ("rows.json", ["rows.json"]),
        ("rows/deep/c.json", ["rows/deep/c.json"]),
        ("x[1].json", ["x[1].json"]),
        ("x[1]*", ["x[1].json"]),
        ("*", ["rows.json", "x[1].json"]),
        ("", ["rows.json", "x[1].json"]),
        ("ro", []),
        ("rows/*/nothing", []),
    ],
)
def test_matching(tree: ObjectTree, pattern: str, found: list[str]) -> None:
    assert list(matching(tree, "mine", pattern)) == found
