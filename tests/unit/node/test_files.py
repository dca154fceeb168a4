"""Atomic files."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from trainshed.node.files import atomic_file, write_file


def test_a_file_is_replaced_with_the_permissions_that_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o644)
    write_file(path, b"new", durable=True)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    write_file(str(path), b"program", mode=0o700)
    assert path.stat().st_mode & 0o777 == 0o700
    assert os.listdir(tmp_path) == ["a"]


def test_the_name_changes_only_when_the_content_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with atomic_file(path) as file:
        file.write(b"ne")
        file.flush()
        assert path.read_text() == "old"
        file.write(b"w")
    assert path.read_text() == "new"


def test_an_error_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as file:
        file.write(b"ne")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_folder_in_its_place_is_an_error_without_a_draft(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        write_file(tmp_path / "a", b"new")
    assert os.listdir(tmp_path) == ["a"]


def test_the_longest_name_of_a_file_system_fits(tmp_path: Path) -> None:
    write_file(tmp_path / ("n" * 255), b"new")
    assert os.listdir(tmp_path) == ["n" * 255]


def test_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    path, contents = tmp_path / "a", [bytes([65 + number]) * 100_000 for number in range(8)]
    threads = [threading.Thread(target=write_file, args=(path, content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert os.listdir(tmp_path) == ["a"]


def test_a_name_without_a_folder_is_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_file("a", b"new", durable=True)
    assert (tmp_path / "a").read_bytes() == b"new"
