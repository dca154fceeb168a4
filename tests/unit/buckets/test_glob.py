"""Which objects a pattern stands for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.buckets.file_backend import FileBackend
from trainshed.buckets.glob import GlobPattern, glob_objects
from trainshed.domain.objects import ObjectDraft

NAMES = ("rows/a.json", "rows/b.json", "rows/b.txt", "rows/deep/c.json", "rows.json", "x[1].json")


@pytest.fixture
def tree(tmp_path: Path) -> FileBackend:
    tree = FileBackend(tmp_path / "buckets", tmp_path / "uploads")
    for folder in (tmp_path / "buckets", tmp_path / "uploads"):
        folder.mkdir(exist_ok=True)
    tree.make_bucket("mine")
    for name in NAMES:
        with tree.stage() as staged:
            staged.write(b"1")
            tree.commit(staged, ObjectDraft(bucket="mine", name=name))
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
        ("rows/***", ["rows/a.json", "rows/b.json", "rows/b.txt", "rows/deep/c.json"]),
        ("**c.json", ["rows/deep/c.json"]),
        ("r*/**", ["rows/a.json", "rows/b.json", "rows/b.txt", "rows/deep/c.json"]),
        ("r*.json", ["rows.json"]),
        ("**/?.json", ["rows/a.json", "rows/b.json", "rows/deep/c.json"]),
    ],
)
def test_matching(tree: FileBackend, pattern: str, found: list[str]) -> None:
    assert list(glob_objects(tree, "mine", pattern)) == found


WORDS = st.text("ab/*?", max_size=8)


@given(pattern=WORDS, name=WORDS)
def test_a_pattern_means_what_the_expression_for_it_means(pattern: str, name: str) -> None:
    means = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    expression = "".join(means.get(part) or re.escape(part) for part in parts)
    assert GlobPattern(pattern).matches(name) == (re.fullmatch(expression, name) is not None)


def test_no_pattern_takes_long() -> None:
    assert not GlobPattern("**a" * 300 + "b").matches("a" * 1024)
    assert not GlobPattern("*?" * 400 + "b").matches("a" * 1024)
