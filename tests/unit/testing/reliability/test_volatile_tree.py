"""What a power cut leaves of a file tree: all that was synced, and anything of the rest."""

from __future__ import annotations

import itertools
import random
import stat
from collections.abc import Callable

import pytest

from trainshed.testing.reliability.disk.volatile_tree import SECTOR, Inode, VolatileTree, Write, torn

SEEDS = [str(seed) for seed in range(200)]
FILE, FOLDER = stat.S_IFREG | 0o600, stat.S_IFDIR | 0o700


def synced(tree: VolatileTree, path: str, content: bytes) -> Inode:
    """A file whose content and name are durable."""
    inode = tree.make(path, FILE)
    tree.write(inode, 0, content)
    tree.sync(inode)
    tree.sync(tree.find(path.rpartition("/")[0]))
    return inode


def content(tree: VolatileTree, path: str) -> bytes | None:
    try:
        return bytes(tree.find(path).content)
    except FileNotFoundError:
        return None


def outcomes(make: Callable[[VolatileTree], object], path: str) -> set[bytes | None]:
    """What a path holds after each of many cuts."""
    found = set()
    for seed in SEEDS:
        tree = VolatileTree()
        make(tree)
        found.add(content(tree.cut(seed), path))
    return found


def test_what_was_synced_survives_every_cut() -> None:
    assert outcomes(lambda tree: synced(tree, "/a", b"x" * 3000), "/a") == {b"x" * 3000}


def test_a_name_needs_a_sync_of_its_folder_though_the_file_was_synced() -> None:
    def make(tree: VolatileTree) -> None:
        inode = tree.make("/a", FILE)
        tree.write(inode, 0, b"x")
        tree.sync(inode)

    assert outcomes(make, "/a") == {None, b"x"}


def test_a_file_needs_a_sync_though_its_name_was_synced() -> None:
    size = 4 * SECTOR

    def make(tree: VolatileTree) -> None:
        tree.write(tree.make("/a", FILE), 0, b"x" * size)
        tree.sync(tree.find("/"))

    found = outcomes(make, "/a")
    assert {b"", b"x" * size, bytes(size)} <= found  # absent, whole, zeros
    assert any(each and 0 < each.count(b"x") < size for each in found)  # and torn
    assert None not in found


def test_an_overwrite_is_torn_at_sectors_alone() -> None:
    old, new = b"o" * 5000, b"n" * 3000

    def make(tree: VolatileTree) -> None:
        inode = synced(tree, "/a", old)
        tree.write(inode, 700, new)

    for found in outcomes(make, "/a"):
        assert found is not None
        assert (found[:700], found[3700:]) == (old[:700], old[3700:])
        edges = [700, *range(2 * SECTOR, 3700, SECTOR), 3700]
        assert all(len(set(found[begin:end])) == 1 for begin, end in itertools.pairwise(edges))


def test_a_truncation_may_be_lost() -> None:
    def make(tree: VolatileTree) -> None:
        tree.truncate(synced(tree, "/a", b"x" * 10), 3)

    assert outcomes(make, "/a") == {b"x" * 3, b"x" * 10}


def test_a_rename_without_a_sync_of_the_folder_is_lost_or_survives_as_a_whole() -> None:
    def make(tree: VolatileTree) -> None:
        synced(tree, "/a", b"old")
        synced(tree, "/draft", b"new")
        tree.rename("/draft", "/a")

    assert outcomes(make, "/a") == {b"old", b"new"}
    for seed in SEEDS:
        tree = VolatileTree()
        make(tree)
        left = tree.cut(seed)
        assert (content(left, "/a") == b"new") == (content(left, "/draft") is None)


def test_a_rename_survives_a_sync_of_either_folder() -> None:
    for folder in ("/from", "/to"):

        def make(tree: VolatileTree, folder: str = folder) -> None:
            for name in ("/from", "/to"):
                tree.make(name, FOLDER)
            tree.sync(tree.find("/"))
            inode = tree.make("/from/draft", FILE)
            tree.write(inode, 0, b"new")
            tree.sync(inode)
            tree.rename("/from/draft", "/to/a")
            tree.sync(tree.find(folder))

        assert outcomes(make, "/to/a") == {b"new"}
        assert outcomes(make, "/from/draft") == {None}


def test_changes_of_a_folder_survive_in_their_order() -> None:
    def make(tree: VolatileTree) -> None:
        for name in ("/1", "/2", "/3"):
            tree.make(name, FILE)
        tree.remove("/1", folder=False)

    seen = set()
    for seed in SEEDS:
        tree = VolatileTree()
        make(tree)
        seen.add(tuple(sorted(tree.cut(seed).find("/").names)))
    assert seen == {(), ("1",), ("1", "2"), ("1", "2", "3"), ("2", "3")}


def test_a_new_folder_is_lost_with_all_in_it_unless_its_own_name_is_synced() -> None:
    def make(tree: VolatileTree) -> None:
        tree.make("/folder", FOLDER)
        synced(tree, "/folder/a", b"x")

    assert outcomes(make, "/folder/a") == {None, b"x"}


def test_an_empty_seed_loses_all_that_was_not_synced() -> None:
    tree = VolatileTree()
    inode = synced(tree, "/a", b"one")
    tree.write(inode, 3, b"two")
    tree.make("/b", FILE)
    left = tree.cut("")
    assert (content(left, "/a"), content(left, "/b")) == (b"one", None)


def test_what_a_cut_left_is_durable() -> None:
    tree = VolatileTree()
    tree.write(tree.make("/a", FILE), 0, b"x" * 2000)
    left = tree.cut("7")
    found = content(left, "/a")
    assert all(content(left.cut(seed), "/a") == found for seed in SEEDS[:20])


@pytest.mark.parametrize("fate", range(20))
def test_a_torn_content_consists_of_what_was_and_what_was_written(fate: int) -> None:
    writes = [Write(0, b"1" * 600), Write(600, b"2" * 600), Write(300, None), Write(300, b"3" * 2000)]
    assert set(torn(b"0" * 1500, writes, random.Random(fate))) <= {*b"0123", 0}
