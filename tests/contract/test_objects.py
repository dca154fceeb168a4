"""What objects promise wherever their bucket is: in a folder of this server, in S3, or in Cloud Storage."""

from __future__ import annotations

import base64
import hashlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trainshed.buckets.backend import BackendRouter
from trainshed.buckets.cloud.backend import CloudBackend
from trainshed.buckets.cloud.s3 import S3Client
from trainshed.buckets.uploads import UploadSession, UploadSessions
from trainshed.domain.iam import Principal, Role
from trainshed.domain.objects import ListQuery, ObjectDraft, ObjectInfo, ObjectMetadata, Preconditions
from trainshed.domain.work_budget import unlimited
from trainshed.errors import ConditionNotMetError, DataLossError, InvalidArgumentError, NotFoundError, NotModified
from trainshed.services.storage.objects import Objects, ObjectSource
from trainshed.testing.fakes.s3_server import BUCKET, S3Server
from trainshed.testing.workloads.bucket_objects import expected, walked

pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # which gcsfs does

NAMES = [
    *("a", "a b", "a;b", "a\\b", "..a", "%2e%2e%2f", "-rf", "*", "?x=1#y", "x?versionId=3", "é", "日本語", "😀"),
    *("a'b\"c", "x" * 255, "d/" * 100 + "f", "dir/", "a+b&c=d"),
]
WRITER = Principal(user="w", project="p", role=Role.EDITOR)


@pytest.fixture
def objects(trees: BackendRouter, tmp_path: Path) -> Objects:
    return Objects(trees, UploadSessions(tmp_path / "uploads"), owner=lambda bucket: "p")


def put(trees: BackendRouter, name: str, data: bytes = b"", **draft: object) -> ObjectInfo:
    with trees.stage() as staged:
        staged.write(data)
        return trees.commit(staged, ObjectDraft(bucket="bucket", name=name, **draft))  # type: ignore[arg-type]


def get(trees: BackendRouter, name: str) -> bytes:
    with trees.open("bucket", name) as reader:
        return b"".join(reader.read(offset) for offset in range(0, reader.info.size, 1 << 20))


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def test_names_come_back_as_they_went_in(trees: BackendRouter) -> None:
    for name in NAMES:
        data = b"" if name.endswith("/") else name.encode()
        assert put(trees, name, data).name == name
        assert (trees.info("bucket", name).size, get(trees, name)) == (len(data), data)
    assert [item.name for item in trees.list("bucket", ListQuery()).items] == sorted(NAMES)
    for name in NAMES:
        trees.delete("bucket", name, Preconditions())
    assert trees.list("bucket", ListQuery()).items == ()


def test_what_is_said_of_an_object_is_kept_with_it(trees: BackendRouter) -> None:
    traits = ObjectMetadata(
        content_type="text/x-odd",
        content_encoding="gzip",
        content_language="de",
        content_disposition="attachment; filename=größe.txt",
        cache_control="no-store",
        custom_time="2026-01-02T03:04:05Z",
        metadata={"Größe": "klein ä", "UPPER": "1"},
    )
    info = put(trees, "said", b"not gzip at all", traits=traits, components=3, upload="0" * 32)
    assert (info.traits, info.md5, info.components, info.upload) == (traits, md5(b"not gzip at all"), 3, "0" * 32)
    assert trees.info("bucket", "said") == info
    assert trees.list("bucket", ListQuery()).items == (info,)
    assert get(trees, "said") == b"not gzip at all"
    assert put(trees, "a/b.json").traits.content_type == "application/json"


def test_bytes_that_look_like_the_ends_of_messages_are_kept(trees: BackendRouter) -> None:
    for data in (b"\n--==0==--", b"\r\n--==0==\r\n\r\nx", b"0\r\n\r\n", b"\x1f\x8b\x08"):
        assert put(trees, "a", data).md5 == md5(data)
        assert get(trees, "a") == data


def test_a_listing_and_a_look_tell_the_same_generation(trees: BackendRouter) -> None:
    first = put(trees, "a", b"one")
    assert [item.generation for item in trees.list("bucket", ListQuery(checksums=False)).items] == [first.generation]
    second = put(trees, "a", b"two")
    assert second.generation != first.generation
    assert [item.generation for item in trees.list("bucket", ListQuery(checksums=False)).items] == [second.generation]


def test_conditions_hold_before_anything_is_written(trees: BackendRouter) -> None:
    first = put(trees, "a", b"one", conditions=Preconditions(generation=0))
    for wrong in (
        Preconditions(generation=0),
        Preconditions(generation=first.generation + 1),
        Preconditions(etags=("x",)),
    ):
        with pytest.raises(ConditionNotMetError):
            put(trees, "a", b"two", conditions=wrong)
    assert get(trees, "a") == b"one"
    second = put(trees, "a", b"two", conditions=Preconditions(generation=first.generation))
    with pytest.raises(ConditionNotMetError):
        trees.delete("bucket", "a", Preconditions(generation=first.generation))
    with pytest.raises(NotFoundError):
        trees.delete("bucket", "a", Preconditions(), generation=first.generation)
    trees.delete("bucket", "a", Preconditions(etags=(second.etag,)), generation=second.generation)
    with pytest.raises(NotFoundError):
        trees.info("bucket", "a")
    with pytest.raises(NotFoundError):
        trees.open("bucket", "a")
    with pytest.raises(NotFoundError):
        trees.delete("bucket", "a", Preconditions())


def test_one_of_many_writers_of_a_new_object_wins(trees: BackendRouter) -> None:
    def write(number: int) -> bool:
        try:
            put(trees, "wanted", b"%d" % number, conditions=Preconditions(generation=0))
        except ConditionNotMetError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(write, range(8))) == 1


@pytest.mark.parametrize("wrong", [{"md5": md5(b"other")}, {"crc32c": "AAAAAA=="}], ids=["md5", "crc32c"])
def test_bytes_that_are_not_those_announced_are_not_stored(trees: BackendRouter, wrong: dict[str, str]) -> None:
    put(trees, "a", b"old")
    with pytest.raises(InvalidArgumentError, match="Nothing was stored"):
        put(trees, "a", b"new", **wrong)
    assert get(trees, "a") == b"old"


@pytest.mark.parametrize("name", ["", "/a", "a//b", ".", "a/../b", "a\nb", "x" * 1025], ids=repr)
def test_names_that_no_file_can_have_are_refused(trees: BackendRouter, name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        put(trees, name)


def test_a_large_object_in_parts(trees: BackendRouter) -> None:
    data = bytes(range(256)) * (20 << 12)  # 20 MiB
    info = put(trees, "large", data, conditions=Preconditions(generation=0))
    assert (info.size, info.md5) == (len(data), md5(data))
    assert get(trees, "large") == data
    with trees.open("bucket", "large") as reader:
        assert reader.read(len(data) - 10, 100) == data[-10:]
        assert reader.read(12_345_678, 5) == data[12_345_678:12_345_683]
        assert reader.read(len(data), 1) == b""
    with pytest.raises(ConditionNotMetError):
        put(trees, "large", data[: 9 << 20], conditions=Preconditions(generation=0))


def test_a_reader_never_mixes_two_versions(trees: BackendRouter) -> None:
    put(trees, "a", b"o" * (3 << 20))
    with trees.open("bucket", "a") as reader:
        assert reader.read(0, 10) == b"o" * 10
        put(trees, "a", b"n" * (3 << 20))
        try:
            assert reader.read(1 << 20, 10) == b"o" * 10
        except DataLossError as exc:
            assert "was replaced or removed" in str(exc)  # the other of the two good ends
    assert get(trees, "a") == b"n" * (3 << 20)


# -- by way of the service


def test_reads_with_conditions(objects: Objects, trees: BackendRouter) -> None:
    info = put(trees, "a", b"x")
    with pytest.raises(NotModified):
        objects.get(ObjectSource(bucket="bucket", name="a", conditions=Preconditions(etags_not=(info.etag,))))
    with pytest.raises(NotFoundError):
        objects.open(ObjectSource(bucket="bucket", name="a", generation=info.generation + 1))


def test_copies_moves_and_composes(objects: Objects, trees: BackendRouter) -> None:
    put(trees, "one", b"1" * (2 << 20), traits=ObjectMetadata(content_type="text/x-odd", metadata={"k": "v"}))
    put(trees, "two", b"22")
    source = ObjectSource(bucket="bucket", name="one")
    copied = objects.copy(source, ObjectDraft(bucket="bucket", name="copy"), WRITER, unlimited(), keep_traits=True)
    assert (copied.traits.metadata, copied.md5) == ({"k": "v"}, md5(b"1" * (2 << 20)))
    moved = objects.move(source, ObjectDraft(bucket="bucket", name="moved"), WRITER, unlimited())
    assert (moved.md5, objects.exists("bucket", "one")) == (copied.md5, False)
    parts = [ObjectSource(bucket="bucket", name=name) for name in ("moved", "two")]
    composed = objects.compose(parts, ObjectDraft(bucket="bucket", name="whole"), unlimited())
    assert composed.components == 2
    assert get(trees, "whole") == b"1" * (2 << 20) + b"22"
    assert objects.folder_holds_files("bucket", "")
    assert objects.matches("bucket", "mov*")


def test_an_upload_in_pieces_survives_the_server_and_a_lost_answer(
    objects: Objects, trees: BackendRouter, tmp_path: Path
) -> None:
    upload = objects.begin(ObjectDraft(bucket="bucket", name="pieces"))
    session = objects.resume("bucket", upload, "pieces")
    assert isinstance(session, UploadSession)
    session.write(b"first ")
    objects.keep(session)
    assert not objects.exists("bucket", "pieces")
    again = Objects(trees, UploadSessions(tmp_path / "uploads"), owner=lambda bucket: "p")
    session = again.resume("bucket", upload, "pieces")
    assert isinstance(session, UploadSession)
    session.write(b"second")
    done = again.finish(session)
    assert again.resume("bucket", upload, "pieces") == done
    assert get(trees, "pieces") == b"first second"


# -- listings


PART = st.text(alphabet="ab-.é", min_size=1, max_size=3).filter(lambda text: text not in (".", ".."))
NAME = st.lists(PART, min_size=1, max_size=3).flatmap(
    lambda parts: st.sampled_from(["/".join(parts), "/".join(parts) + "/"])
)
BOUND = st.text(alphabet="ab-./", max_size=3)


@pytest.fixture(scope="module")
def listed(s3: S3Server) -> CloudBackend:
    return CloudBackend(S3Client("bucket", f"s3://{BUCKET}/listed"))


@settings(deadline=None, max_examples=12)
@given(
    names=st.lists(NAME, max_size=10, unique=True),
    prefix=st.one_of(st.just(""), BOUND),
    delimiter=st.sampled_from(["", "/", "-", "b"]),
    bounds=st.tuples(BOUND, BOUND),
    limit=st.integers(1, 4),
    delimiter_objects=st.booleans(),
)
@example(names=["-/a"], prefix="", delimiter="-", bounds=("-/", ""), limit=1, delimiter_objects=False)
def test_pages_of_s3_give_what_sorting_all_names_gives(
    s3: S3Server,
    listed: CloudBackend,
    names: list[str],
    prefix: str,
    delimiter: str,
    bounds: tuple[str, str],
    limit: int,
    delimiter_objects: bool,
) -> None:
    """The same as for folders, and with names that only a cloud can hold together."""
    query = ListQuery(
        prefix=prefix,
        delimiter=delimiter,
        start=bounds[0],
        end=bounds[1],
        limit=limit,
        delimiter_objects=delimiter_objects,
        checksums=False,
    )
    for name in names:
        s3.put(f"listed/{quote(name)}", b"")
    try:
        items, prefixes = walked(partial(listed.list, "bucket"), query)
        assert (sorted(items), prefixes) == expected(names, query)
    finally:
        for name in names:
            s3.request("DELETE", f"/{BUCKET}/listed/{quote(name)}")
