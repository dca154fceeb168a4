"""What a job can do to an object's file at any time: put a link to another project's file in its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Swap = Callable[[Path, bytes], None]


def swap_file(path: Path, content: bytes) -> None:
    """Put a link to a file with this content in place of a file."""
    other = _other_project(path) / path.name
    other.write_bytes(content)
    path.unlink()
    path.symlink_to(other)


def swap_folder(path: Path, content: bytes) -> None:
    """Put a link to a folder that has a file of this name and content in place of the file's folder."""
    other = _other_project(path)
    (other / path.name).write_bytes(content)
    path.parent.rename(path.parent.with_name("moved"))
    path.parent.symlink_to(other)


def _other_project(path: Path) -> Path:
    folder = path.parent.parent.with_name("theirs") / "data"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


SWAPS: tuple[Swap, ...] = (swap_file, swap_folder)
