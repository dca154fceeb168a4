"""The store of objects on its own: names, checks, what programs do to its files, and its sweep."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from trainshed.buckets.dirfd import open_directory, prune_below
from trainshed.buckets.file_backend import FileBackend
from trainshed.buckets.names import bucket_name, components, object_path, split_uri
from trainshed.buckets.uploads import SESSION_RETENTION_US, UploadSessions
from trainshed.domain.objects import ListQuery, ObjectDraft, ObjectInfo, ObjectMetadata, Preconditions
from trainshed.domain.times import now_us
from trainshed.domain.work_budget import WorkBudget, WorkLimits
from trainshed.errors import (
    ConditionNotMetError,
    ConflictError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    RequestCancelledError,
    UnavailableError,
)

REFUSED = ["", "/a", "a//b", "//", ".", "..", "a/../b", "../x", "a/.", "a\0b", "a\nb", "a\rb", "x" * 1025, "é" * 200]
KEPT = [
    *("a", "a b", "a;b", "a\\b", "..a", "a..", "...", "a.", "a ", " a", "%2e%2e%2f", "%252e", "-rf", "*", "?x=1#y"),
    *("é", "e\u0301", "日本語", "😀", "a'b\"c", "CON", "put-1", "session-1.json", "x" * 255, "d/" * 100 + "f", "dir/"),
]


@pytest.fixture
def tree(tmp_path: Path) -> FileBackend:
    made = FileBackend(tmp_path / "buckets", tmp_path / "uploads")
    made.make_bucket("bucket")
    return made


def put(tree: FileBackend, name: str, data: bytes = b"", **draft: object) -> ObjectInfo:
    with tree.stage() as staged:
        staged.write(data)
        return tree.commit(staged, ObjectDraft(bucket="bucket", name=name, **draft))  # type: ignore[arg-type]


def get(tree: FileBackend, name: str) -> bytes:
    with tree.open("bucket", name) as reader:
        return reader.read(0, reader.info.size)


@pytest.mark.fault("F44")
@pytest.mark.parametrize("name", REFUSED, ids=repr)
def test_names_that_could_lead_astray_are_refused(tree: FileBackend, name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError):
        put(tree, name)
    with pytest.raises(InvalidArgumentError):
        components(name)
    assert list((tmp_path / "uploads").iterdir()) == []


@pytest.mark.fault("F44")
@pytest.mark.parametrize("name", KEPT, ids=repr)
def test_other_names_come_back_as_they_went_in(tree: FileBackend, name: str, tmp_path: Path) -> None:
    data = b"" if name.endswith("/") else name.encode()
    put(tree, name, data)
    assert [item.name for item in tree.list("bucket", ListQuery()).items] == [name]
    assert tree.info("bucket", name).size == len(data)
    assert get(tree, name) == data
    assert object_path(tmp_path / "buckets", "bucket", name).exists()
    tree.delete("bucket", name, Preconditions())
    assert list((tmp_path / "buckets" / "bucket").iterdir()) == []


@pytest.mark.parametrize("name", ["ab", "Abc", "a..b", "-ab", "ab-", "1.2.3.4", "a/b", "..", "a" * 64, "ab\n"])
def test_bucket_names(name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        bucket_name(name)


def test_addresses() -> None:
    assert split_uri("gs://my-bucket/a/b") == ("my-bucket", "a/b")
    assert split_uri("gs://my-bucket") == ("my-bucket", "")
    for wrong in ("s3://my-bucket/a", "gs://", "gs:///a", "my-bucket/a"):
        with pytest.raises(InvalidArgumentError):
            split_uri(wrong)


def test_a_file_can_not_be_a_folder_too(tree: FileBackend) -> None:
    put(tree, "a", b"1")
    with pytest.raises(FailedPreconditionError, match="a is an object"):
        put(tree, "a/b")
    put(tree, "c/d")
    with pytest.raises(FailedPreconditionError, match="objects below c/"):
        put(tree, "c")
    tree.delete("bucket", "c/d", Preconditions())
    put(tree, "c", b"2")
    assert get(tree, "c") == b"2"


def test_an_empty_folder_that_a_program_left_gives_way(tree: FileBackend, tmp_path: Path) -> None:
    (tmp_path / "buckets" / "bucket" / "out" / "deep").mkdir(parents=True)
    put(tree, "out", b"x")
    assert get(tree, "out") == b"x"


def test_a_mark_keeps_its_folder_and_outlives_what_lies_in_it(tree: FileBackend) -> None:
    first = put(tree, "exports/")
    put(tree, "exports/model", b"x")
    tree.delete("bucket", "exports/model", Preconditions())
    assert tree.info("bucket", "exports/") == first
    with pytest.raises(FailedPreconditionError):
        put(tree, "exports")
    with pytest.raises(ConditionNotMetError):
        put(tree, "exports/", conditions=Preconditions(generation=0))
    with pytest.raises(InvalidArgumentError, match="content"):
        put(tree, "exports/", b"x")


def test_objects_of_a_bucket_without_a_row_are_refused_and_never_removed(tree: FileBackend) -> None:
    """The row may be lost, as after the return to an older database; the objects may be another project's."""
    put(tree, "data/a", b"kept")
    with pytest.raises(ConflictError, match="objects of an earlier one"):
        tree.make_bucket("bucket")
    assert get(tree, "data/a") == b"kept"


def test_a_folder_without_objects_becomes_the_buckets_as_it_is(tree: FileBackend, tmp_path: Path) -> None:
    left = tmp_path / "buckets" / "left"
    (left / "empty").mkdir(parents=True)
    (left / "link").symlink_to(tmp_path)
    tree.make_bucket("left")
    assert tree.list("left", ListQuery()).items == ()
    assert sorted(path.name for path in left.iterdir()) == ["empty", "link"]


def test_generations_grow_even_if_the_clock_does_not(tmp_path: Path) -> None:
    tree = FileBackend(tmp_path / "buckets", tmp_path / "uploads", clock=lambda: 1_000_000)
    tree.make_bucket("bucket")
    assert [put(tree, "a").generation for _ in range(3)] == [1_000_000, 1_000_001, 1_000_002]


def test_a_program_that_rewrites_a_file_makes_a_new_generation(tree: FileBackend, tmp_path: Path) -> None:
    old = put(tree, "log.txt", b"old", traits=ObjectMetadata(content_type="text/x-odd", metadata={"a": "b"}))
    path = tmp_path / "buckets" / "bucket" / "log.txt"
    path.write_bytes(b"new bytes")
    os.utime(path, ns=(now_us() * 1000 - 5_000_000_123,) * 2)
    new = tree.info("bucket", "log.txt")
    assert new.generation != old.generation
    assert (new.traits.content_type, new.traits.metadata) == ("text/plain", {})
    assert new.md5 == base64.b64encode(hashlib.md5(b"new bytes").digest()).decode()
    assert tree.list("bucket", ListQuery(checksums=False)).items == (new,)  # noted on the file, not read again


def test_checksums_of_a_file_still_being_written_are_not_noted(tree: FileBackend, tmp_path: Path) -> None:
    (tmp_path / "buckets" / "bucket" / "fresh").write_bytes(b"x")
    assert tree.info("bucket", "fresh").crc32c
    assert not tree.list("bucket", ListQuery(checksums=False)).items[0].crc32c
    assert tree.with_checksums(tree.list("bucket", ListQuery()).items)[0].crc32c


def test_noting_checksums_does_not_undo_a_change_of_metadata(tmp_path: Path) -> None:
    """The file is read without a lock, which may take seconds; what is patched meanwhile was acknowledged."""
    meanwhile: list[Callable[[], object]] = []

    def clock() -> int:  # asked once the file has been read
        if meanwhile:
            meanwhile.pop()()
        return now_us()

    tree = FileBackend(tmp_path / "buckets", tmp_path / "uploads", clock=clock)
    tree.make_bucket("bucket")
    path = tmp_path / "buckets" / "bucket" / "a"
    path.write_bytes(b"x")
    os.utime(path, (10**9, 10**9))
    meanwhile.append(lambda: tree.patch("bucket", "a", lambda info: ObjectMetadata(metadata={"k": "v"})))
    assert tree.info("bucket", "a").crc32c
    assert meanwhile == []
    after = tree.info("bucket", "a")
    assert (after.traits.metadata, after.metageneration) == ({"k": "v"}, 2)


@pytest.mark.fault("F45")
def test_links_are_neither_followed_nor_harmed(tree: FileBackend, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    bucket = tmp_path / "buckets" / "bucket"
    (bucket / "file").symlink_to(outside / "secret")
    (bucket / "folder").symlink_to(outside)
    for name in ("file", "folder/secret"):
        with pytest.raises(NotFoundError):
            tree.info("bucket", name)
        with pytest.raises(NotFoundError):
            tree.delete("bucket", name, Preconditions())
    with pytest.raises(FailedPreconditionError):
        put(tree, "folder/new", b"x")
    put(tree, "file", b"an object now")
    assert (outside / "secret").read_text() == "secret"
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert not (bucket / "file").is_symlink()


def test_a_pipe_is_no_object_and_keeps_nobody_waiting(tree: FileBackend, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "buckets" / "bucket" / "pipe")
    with pytest.raises(NotFoundError):
        tree.info("bucket", "pipe")
    assert tree.list("bucket", ListQuery()).items == ()


@pytest.mark.fault("F46")
def test_bytes_that_rotted_are_not_given_out(tree: FileBackend, tmp_path: Path) -> None:
    info = put(tree, "a", b"good bytes")
    path = tmp_path / "buckets" / "bucket" / "a"
    path.write_bytes(b"gxod bytes")
    os.utime(path, ns=(info.generation * 1000,) * 2)  # a flipped bit leaves the time as it was
    with pytest.raises(DataLossError, match="CRC32C"):
        get(tree, "a")


def test_wrong_checksums_store_nothing(tree: FileBackend, tmp_path: Path) -> None:
    put(tree, "a", b"old")
    for wrong in ({"md5": "1B2M2Y8AsgTpgAmY7PhCfg=="}, {"crc32c": "AAAAAA=="}):
        with pytest.raises(InvalidArgumentError, match="Nothing was stored"):
            put(tree, "a", b"new", **wrong)
    assert get(tree, "a") == b"old"
    assert list((tmp_path / "uploads").iterdir()) == []


def test_metadata_that_a_file_can_not_hold_is_refused(tree: FileBackend) -> None:
    with pytest.raises(InvalidArgumentError, match="Shorten"):
        put(tree, "a", b"x", traits=ObjectMetadata(metadata={"long": "x" * 4000}))
    put(tree, "a", b"x")
    with pytest.raises(InvalidArgumentError, match="Shorten"):
        tree.patch("bucket", "a", lambda info: ObjectMetadata(metadata={"long": "x" * 4000}))
    assert tree.info("bucket", "a").metageneration == 1


def test_a_bucket_with_objects_stays_and_an_empty_one_goes_for_good(tree: FileBackend, tmp_path: Path) -> None:
    put(tree, "a/b")
    gone: list[str] = []
    with pytest.raises(ConflictError, match="not empty"):
        tree.remove_bucket("bucket", forget=lambda: gone.append("bucket"))
    tree.delete("bucket", "a/b", Preconditions())
    (tmp_path / "buckets" / "bucket" / "left" / "over").mkdir(parents=True)
    tree.remove_bucket("bucket", forget=lambda: gone.append("bucket"))
    assert gone == ["bucket"]
    with pytest.raises(NotFoundError):
        put(tree, "a")
    assert not (tmp_path / "buckets" / "bucket").exists()


def test_a_bucket_is_cleared_of_empty_folders_before_it_is_removed(tree: FileBackend, tmp_path: Path) -> None:
    bucket = tmp_path / "buckets" / "bucket"
    put(tree, "kept/mark/")
    with pytest.raises(ConflictError, match="not empty"):
        tree.clear_bucket("bucket")
    tree.delete("bucket", "kept/mark/", Preconditions())
    for name in ("a/b/c", "a/d", "e", "f/g"):
        (bucket / name).mkdir(parents=True)
    (bucket / "f" / "no\nobject").touch()
    tree.clear_bucket("bucket")
    assert sorted(path.name for path in bucket.rglob("*")) == ["f", "no\nobject"]
    tree.remove_bucket("bucket", forget=lambda: None)
    assert not bucket.exists()


def test_a_bucket_whose_delete_is_stopped_stays(tree: FileBackend, tmp_path: Path) -> None:
    bucket = tmp_path / "buckets" / "bucket"
    for number in range(50):
        (bucket / "many" / str(number)).mkdir(parents=True)
    limits = WorkLimits(max_bytes=1 << 40, max_seconds=600)
    overdue, left = WorkBudget(replace(limits, max_seconds=0)), WorkBudget(limits)
    left.cancel()
    for budget, error in ((overdue, DeadlineExceededError), (left, RequestCancelledError)):
        with pytest.raises(error):
            tree.clear_bucket("bucket", budget)
        with pytest.raises(error):
            tree.remove_bucket("bucket", forget=lambda: pytest.fail("it is forgotten"), budget=budget)
    put(tree, "a")


def test_a_folder_that_is_marked_while_its_bucket_is_cleared_stays(tree: FileBackend, tmp_path: Path) -> None:
    names = [f"{number}/" for number in range(20)]
    for name in names:
        (tmp_path / "buckets" / "bucket" / name).mkdir()
    unmarked = iter(names)
    with open_directory(tmp_path, ("buckets", "bucket")) as folder:
        prune_below(folder, lock=threading.Lock(), check=lambda: [put(tree, name) for name in islice(unmarked, 1)])
    marked = [item.name for item in tree.list("bucket", ListQuery()).items]
    assert marked == sorted(set(names) - set(unmarked))
    assert (tmp_path / "buckets" / "bucket" / "0").exists()


def test_writers_and_deleters_of_one_folder_do_not_lose_each_other(tree: FileBackend) -> None:
    """Deleting the last object of a folder removes the folder under the feet of whoever writes there."""
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(60):
                put(tree, f"shared/deep/{number}", b"x")
                tree.delete("bucket", f"shared/deep/{number}", Preconditions())
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert tree.list("bucket", ListQuery()).items == ()


def test_a_sweep_takes_orphans_and_old_sessions_and_leaves_the_rest(tree: FileBackend, tmp_path: Path) -> None:
    uploads = tmp_path / "uploads"
    sessions = UploadSessions(uploads)
    live, old = (sessions.begin(ObjectDraft(bucket="bucket", name=name)) for name in ("live", "old"))
    os.utime(uploads / f"session-{old}.data", ns=((now_us() - SESSION_RETENTION_US) * 1000 - 10**9,) * 2)
    (uploads / "put-orphan").touch()
    (uploads / "gone-bucket" / "deep").mkdir(parents=True)
    tree.sweep()
    sessions.sweep()
    assert sorted(path.name for path in uploads.iterdir()) == [f"session-{live}.data", f"session-{live}.json"]


def test_a_session_goes_on_in_another_process_with_all_that_was_said(tree: FileBackend, tmp_path: Path) -> None:
    draft = ObjectDraft(
        bucket="bucket", name="a", traits=ObjectMetadata(metadata={"k": "v"}), conditions=Preconditions(generation=0)
    )
    upload = UploadSessions(tmp_path / "uploads").begin(draft)
    first = UploadSessions(tmp_path / "uploads")
    session = first.open("bucket", upload)
    session.write(b"hello ")
    with pytest.raises(UnavailableError):
        first.open("bucket", upload)
    first.keep(session)
    session = UploadSessions(tmp_path / "uploads").open("bucket", upload)
    session.write(b"world")
    info = tree.commit(session, session.draft)
    session.close()
    assert get(tree, "a") == b"hello world"
    assert (info.upload, info.traits.metadata) == (upload, {"k": "v"})
    for wrong in ("../x", "x" * 32, "0" * 32):
        with pytest.raises(NotFoundError):
            first.open("bucket", wrong)


#: Run as a user whom permissions bind: lists, reads, deletes and replaces files of mode 000.
UNREADABLE = """
import sys
from pathlib import Path
from trainshed.buckets.file_backend import FileBackend
from trainshed.domain.objects import ListQuery, ObjectDraft, Preconditions
from trainshed.errors import FailedPreconditionError

root = Path(sys.argv[1])
tree = FileBackend(root / "buckets", root / "uploads")
for checksums in (False, True):
    page = tree.list("bucket", ListQuery(checksums=checksums))
    print([(item.name, item.size, item.generation > 0) for item in page.items])
for read in (tree.open, tree.info):
    try:
        read("bucket", "folder/closed")
    except FailedPreconditionError as exc:
        print(exc)
tree.delete("bucket", "folder/closed", Preconditions())
with tree.stage() as staged:
    staged.write(b"new")
    tree.commit(staged, ObjectDraft(bucket="bucket", name="shut"))
print([(item.name, item.size) for item in tree.list("bucket", ListQuery()).items])
"""


def test_an_unreadable_file_is_listed_and_fails_only_its_own_read(tree: FileBackend, tmp_path: Path) -> None:
    put(tree, "open", b"12")
    put(tree, "shut", b"123")
    put(tree, "folder/closed", b"1234")
    for name in ("shut", "folder/closed"):
        (tmp_path / "buckets" / "bucket" / name).chmod(0)
    command = [sys.executable, "-c", UNREADABLE, str(tmp_path)]
    if os.geteuid() == 0:  # root may read everything, unless it gives up these two capabilities
        if shutil.which("setpriv") is None:
            pytest.skip("root needs setpriv to give up the right to read every file")
        command = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", *command]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    listed = "[('folder/closed', 4, True), ('open', 2, True), ('shut', 3, True)]"
    sentence = (
        "The file behind gs://bucket/folder/closed can't be read: its mode is 000 and its owner is user "
        f"{os.getuid()}, which keeps the server out. Change that with chmod or chown on the server's machine, or "
        "delete the object or write it anew."
    )
    assert ran.stdout.splitlines() == [listed, listed, sentence, sentence, "[('open', 2), ('shut', 3)]"]
