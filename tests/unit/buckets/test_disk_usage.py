"""Bytes of a bucket's files: of any depth, without what links lead to."""

from __future__ import annotations

import os
from pathlib import Path

from trainshed.buckets.disk_usage import stored_bytes


def test_files_of_all_folders_count_and_links_lead_nowhere(tmp_path: Path) -> None:
    bucket = tmp_path / "b"
    (bucket / "a" / "b").mkdir(parents=True)
    (bucket / "one").write_bytes(b"x" * 10)
    (bucket / "a" / "b" / "two").write_bytes(b"x" * 100)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "large").write_bytes(b"x" * 1000)
    (bucket / "a" / "link").symlink_to(outside / "large")
    (bucket / "folder").symlink_to(outside)
    os.mkfifo(bucket / "pipe")
    assert stored_bytes(tmp_path, "b") == 110
    os.link(bucket / "one", bucket / "again")
    assert stored_bytes(tmp_path, "b") == 120
    assert stored_bytes(tmp_path, "absent") == 0


def test_a_tree_deeper_than_paths_and_recursion_go(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(tmp_path / "b")
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
        Path("last").write_bytes(b"x" * 7)
    finally:
        os.fchdir(before)
        os.close(before)
    assert stored_bytes(tmp_path, "b") == 7
