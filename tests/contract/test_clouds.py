"""What is different where a bucket is kept in S3: what others write there, what can't be done, what goes wrong."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3fs import S3FileSystem

from trainshed.buckets.backend import BackendRouter
from trainshed.buckets.cloud.backend import CloudBackend
from trainshed.buckets.cloud.config import read_cloud_buckets
from trainshed.buckets.cloud.s3 import S3Client
from trainshed.buckets.file_backend import FileBackend
from trainshed.buckets.model_folders import model_folders
from trainshed.buckets.uploads import UploadSession, UploadSessions
from trainshed.config import Home, Settings
from trainshed.control.deployments.model_files import ModelFileStore
from trainshed.control.packages import PackageRequest, resolve_packages
from trainshed.control.uri_resolver import UriResolver
from trainshed.domain.objects import ListQuery, ObjectDraft, ObjectInfo, ObjectMetadata, Preconditions
from trainshed.errors import (
    CannotProceedError,
    ConditionNotMetError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from trainshed.local.buckets import LocalBuckets
from trainshed.services.storage.mirrors import MIRROR_RETENTION_US, REFRESH_INTERVAL_US, Mirrors
from trainshed.services.storage.objects import Objects
from trainshed.store.database import Database
from trainshed.testing.fakes.s3_server import BUCKET, S3Server
from trainshed.testing.processes.resources import held_port
from trainshed.wiring.core import build_core

SECOND_US = 1_000_000


class Kept:
    """The bucket `kept` in a cloud, and `here` in a folder, both of project p."""

    def __init__(self, path: Path, s3: S3Server, folder: str) -> None:
        self.path = path
        self.s3 = s3
        self.url = f"s3://{BUCKET}/{folder}"
        self.folder = folder
        here = FileBackend(path / "buckets", path / "uploads")
        here.make_bucket("here")
        self.trees = BackendRouter(here, {"kept": CloudBackend(S3Client("kept", self.url))})
        self.addresses = UriResolver(buckets=path / "buckets", backend=self.trees, owner=self.owner)

    def owner(self, bucket: str) -> str:
        if bucket not in ("kept", "here", "theirs"):
            raise NotFoundError("There is no such bucket.")
        return "p" if bucket != "theirs" else "q"

    def put(self, name: str, data: bytes = b"", **draft: object) -> ObjectInfo:
        with self.trees.stage() as staged:
            staged.write(data)
            return self.trees.commit(staged, ObjectDraft(bucket="kept", name=name, **draft))  # type: ignore[arg-type]

    def names(self, **query: object) -> list[str]:
        return [item.name for item in self.trees.list("kept", ListQuery(**query)).items]  # type: ignore[arg-type]


@pytest.fixture
def kept(tmp_path: Path, s3: S3Server, cloud_folder: str) -> Kept:
    return Kept(tmp_path, s3, cloud_folder)


def test_what_others_write_there_is_an_object_too(kept: Kept) -> None:
    kept.s3.put(f"{kept.folder}/data/x.bin", b"foreign", {"content-type": "text/x-odd", "x-amz-meta-k": "v"})
    kept.s3.put(f"{kept.folder}-beside/y", b"not below")
    info = kept.trees.info("kept", "data/x.bin")
    assert (info.size, info.traits.content_type, info.traits.metadata) == (7, "text/x-odd", {"k": "v"})
    assert (info.md5, info.crc32c) == ("", "")
    assert kept.names() == ["data/x.bin"]
    with kept.trees.open("kept", "data/x.bin") as reader:
        assert reader.read(0, 100) == b"foreign"
    kept.put("data/x.bin", b"ours", traits=ObjectMetadata(metadata={"a": "b"}))
    kept.s3.put(f"{kept.folder}/data/x.bin", b"then")  # as many bytes, and others
    again = kept.trees.info("kept", "data/x.bin")
    assert (again.traits.metadata, again.crc32c, again.size) == ({}, "", 4)


def test_what_is_written_here_is_a_plain_object_there(kept: Kept) -> None:
    kept.put("a/b.txt", b"ours")
    assert kept.s3.get(f"{kept.folder}/a/b.txt") == b"ours"


def test_an_object_and_a_folder_of_one_name_can_be_read(kept: Kept) -> None:
    for name in ("a", "a/b", "a//c"):
        kept.s3.put(f"{kept.folder}/{name}", name.encode())
    assert kept.names() == ["a", "a//c", "a/b"]
    with kept.trees.open("kept", "a//c") as reader:
        assert reader.read(0, 10) == b"a//c"


def test_what_can_not_be_done_is_refused_by_name(kept: Kept) -> None:
    info = kept.put("a", b"x")
    with pytest.raises(
        FailedPreconditionError, match=f"kept in {kept.url}, where the metadata of an object can't be changed from here"
    ):
        kept.trees.patch("kept", "a", lambda found: found.traits)
    with pytest.raises(FailedPreconditionError, match=r"Take that table out"):
        kept.trees.remove_bucket("kept", forget=lambda: None)
    with pytest.raises(InvalidArgumentError, match="can keep 2,000 of them"):
        kept.put("a", b"y", traits=ObjectMetadata(metadata={"long": "x" * 2000}))
    assert kept.trees.info("kept", "a") == info


def test_a_cloud_that_keeps_other_bytes_is_found_out(kept: Kept) -> None:
    """moto takes such a body for a form, and keeps nothing of it."""
    with pytest.raises(UnavailableError, match="holds other bytes of a than those that were sent"):
        kept.put("a", b"x", traits=ObjectMetadata(content_type="application/x-www-form-urlencoded"))


class Forgetful(S3Client):
    """Does what it is asked to, and loses its answer."""

    lost: Exception | None = None

    def put(self, path: Path, info: ObjectInfo, *, if_generation: int | None) -> None:
        super().put(path, info, if_generation=if_generation)
        if self.lost is not None:
            raise self.lost


def test_an_object_whose_answer_was_lost_is_known_again(kept: Kept, tmp_path: Path) -> None:
    cloud = Forgetful("kept", kept.url)
    trees = BackendRouter(kept.trees, {"kept": CloudBackend(cloud)})
    new = Preconditions(generation=0)
    cloud.lost = ConditionNotMetError("asked again, by a library, it finds its own object")
    with trees.stage() as staged:
        staged.write(b"one")
        assert trees.commit(staged, ObjectDraft(bucket="kept", name="a", conditions=new)).md5
    with pytest.raises(ConditionNotMetError):
        kept.put("a", b"one", conditions=new)  # the same bytes, and of somebody else
    objects = Objects(trees, UploadSessions(tmp_path / "uploads"), owner=kept.owner)
    upload = objects.begin(ObjectDraft(bucket="kept", name="b", conditions=new))
    cloud.lost = UnavailableError("nobody knows")
    for _ in range(2):
        session = objects.resume("kept", upload, "b")
        assert isinstance(session, UploadSession)
        if session.size == 0:
            session.write(b"two")
            with pytest.raises(UnavailableError):
                objects.finish(session)
        else:
            assert objects.finish(session).size == 3


def test_dots_in_names_lead_nowhere(kept: Kept) -> None:
    kept.s3.put("beside", b"not ours")
    for name in ("..", "../beside", "a/../../beside", ".", "./a", ""):
        with pytest.raises(NotFoundError):
            kept.trees.info("kept", name)
        with pytest.raises(NotFoundError):
            kept.trees.open("kept", name)
        with pytest.raises(NotFoundError):
            kept.trees.delete("kept", name, Preconditions())
    assert kept.names(prefix="../") == []
    with pytest.raises(InvalidArgumentError, match="the mark of a folder"):
        kept.put("a/", b"bytes")


def test_a_cloud_that_is_not_there_is_told_of(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = CloudBackend(S3Client("kept", "s3://no-such-bucket/x"))
    with pytest.raises(FailedPreconditionError, match="there is no bucket no-such-bucket there"):
        missing.list("kept", ListQuery())
    with pytest.raises(NotFoundError):
        missing.info("kept", "a")
    with held_port() as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        monkeypatch.setattr(S3FileSystem, "_cache", {})
        away = CloudBackend(S3Client("kept", kept.url))
        with pytest.raises(UnavailableError, match=f"{kept.url}, where gs://kept is kept, can't be used now: .*{port}"):
            away.list("kept", ListQuery())
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", str(kept.path))
    monkeypatch.setattr(S3FileSystem, "_cache", {})
    with pytest.raises(UnavailableError, match="Unable to locate credentials"):
        CloudBackend(S3Client("kept", kept.url)).info("kept", "a")


@pytest.mark.parametrize(
    ("url", "module", "package"),
    [("s3://lab-data", "s3fs", "s3fs"), ("gs://lab-data/x", "gcsfs.core", "gcsfs")],
)
def test_without_its_package_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, url: str, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    [declared] = read_cloud_buckets({"kept": {"url": url}}, default_project="p-one")
    with pytest.raises(CannotProceedError, match=rf"takes the package {package}, .* -m pip install {package}$"):
        declared.cloud()


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({}, "must have a url"),
        ({"url": "s3://lab-data", "key": "x"}, "and nothing else"),
        ({"url": "ftp://lab-data"}, "it must be s3://BUCKET/FOLDER or gs://BUCKET/FOLDER"),
        ({"url": "s3://"}, "it must be s3://BUCKET/FOLDER"),
        ({"url": "s3://lab-data", "project": "No"}, "A project id is"),
        ("s3://lab-data", "must have a url"),
    ],
)
def test_tables_that_make_no_sense(table: object, sentence: str) -> None:
    with pytest.raises(CannotProceedError, match=sentence):
        read_cloud_buckets({"kept": table}, default_project="p-one")
    with pytest.raises(CannotProceedError, match="Invalid bucket name"):
        read_cloud_buckets({"No": {"url": "s3://lab-data"}}, default_project="p-one")


# -- the core of a server


@pytest.fixture
def home(kept: Kept) -> Home:
    home = Home(kept.path / "home")
    home.create()
    home.config.write_text(f'[buckets.kept]\nurl = "{kept.url}"\nproject = "vision"\n')
    return home


@pytest.fixture
def plain_database(home: Home) -> Iterator[Database]:
    opened = Database(home.database)
    opened.migrate()
    yield opened
    opened.close()


def test_a_server_adopts_the_buckets_of_its_configuration(kept: Kept, home: Home, plain_database: Database) -> None:
    kept.put("a", b"x")
    for _ in range(2):
        core = build_core(home, Settings(), plain_database)
        assert (core.buckets.owner("kept"), core.backend.cloud_of("kept")) == ("vision", kept.url)
        assert [item.name for item in core.objects.list("kept", ListQuery()).items] == ["a"]
    with pytest.raises(FailedPreconditionError, match=r"in config\.toml"):
        core.buckets.delete("kept", Preconditions())
    local = LocalBuckets(home)
    assert (local.resolve("--data=gs://kept/a"), local.unknown) == ("--data=gs://kept/a", ["gs://kept/a"])
    with pytest.raises(NotFoundError, match="is kept in a cloud"):
        local.folder("gs://kept/a")
    home.config.unlink()
    core = build_core(home, Settings(), plain_database)
    assert core.objects.list("kept", ListQuery()).items == ()
    core.buckets.delete("kept", Preconditions())
    assert kept.names() == ["a"]


def test_a_bucket_that_holds_objects_here_is_not_hidden(home: Home, plain_database: Database) -> None:
    text = home.config.read_text()
    home.config.unlink()
    core = build_core(home, Settings(), plain_database)
    core.buckets.make("vision", "kept")
    (home.buckets / "kept" / "old").touch()
    home.config.write_text(text)
    with pytest.raises(CannotProceedError, match="nobody would see any more"):
        build_core(home, Settings(), plain_database)
    (home.buckets / "kept" / "old").unlink()
    assert build_core(home, Settings(), plain_database).buckets.owner("kept") == "vision"


# -- what jobs and versions need of it


def test_addresses_in_arguments(kept: Kept) -> None:
    path_of = kept.addresses.path_resolver("p", serves_gs=True)
    assert path_of("gs://here/a/") == kept.path / "buckets" / "here" / "a"
    assert [path_of(uri) for uri in ("gs://kept/a", "gs://theirs/a", "gs://absent/a")] == [None, None, None]
    assert kept.addresses.remote_path_resolver("p", "/mnt/b", serves_gs=True)("gs://kept/a") is None
    for elsewhere in (
        kept.addresses.path_resolver("p", serves_gs=False),
        kept.addresses.remote_path_resolver("p", "/mnt/b", serves_gs=False),
    ):
        assert elsewhere("gs://here/a") is not None
        with pytest.raises(
            FailedPreconditionError, match=f"gs://kept/a is kept in {kept.url}, and `gs://` in the code"
        ):
            elsewhere("gs://kept/a")


def test_a_package_is_fetched_under_its_own_name(kept: Kept) -> None:
    kept.put("staging/trainer-0.1.tar.gz", b"a package")
    kept.put("other/trainer-0.1.tar.gz", b"another")
    uris = ("gs://kept/staging/trainer-0.1.tar.gz", "gs://kept/other/trainer-0.1.tar.gz")
    wanted = PackageRequest(project="p", copies=kept.path / "attempt" / "fetched", remedy="Do it again.")
    for _ in range(2):
        found = resolve_packages(uris, kept.addresses, wanted)
        assert [each.path.name for each in found] == ["trainer-0.1.tar.gz"] * 2
        assert [each.path.read_bytes() for each in found] == [b"a package", b"another"]
        assert found[0].sha256 == hashlib.sha256(b"a package").hexdigest()
    assert len([path for path in (kept.path / "attempt").rglob("*") if path.is_file()]) == 2
    for absent in ("gs://kept/absent.tar.gz", "gs://theirs/a.tar.gz", "gs://here/a.tar.gz"):
        with pytest.raises(FailedPreconditionError, match=r"is no longer there\. Do it again\."):
            resolve_packages([absent], kept.addresses, wanted)


def test_the_files_of_a_version_are_pinned_from_there(kept: Kept) -> None:
    kept.put("model/saved_model.pb", b"graph")
    kept.put("model/variables/variables.index", b"v")
    pins = ModelFileStore(kept.path / "models", kept.trees, used=lambda project, digest: True)
    with pins.snapshot("p", "gs://kept/model/", check=lambda: None) as pinned:
        assert pinned.names == ("saved_model.pb", "variables/variables.index")
        assert (pinned.folder / "saved_model.pb").read_bytes() == b"graph"
    kept.s3.put(f"{kept.folder}/both/a", b"file")
    kept.s3.put(f"{kept.folder}/both/a/b", b"and folder")
    with (
        pytest.raises(FailedPreconditionError, match="both a file and a folder"),
        pins.snapshot("p", "gs://kept/both", check=lambda: None),
    ):
        pass


def test_exports_are_found_there(kept: Kept) -> None:
    for name in ("job/export/1/saved_model.pb", "job/export/1/variables/v.index", "job/model.ckpt-1.index", "job/"):
        kept.put(name)
    found = list(model_folders(kept.trees, ("kept", "job"), holds_model=lambda names: "saved_model.pb" in names))
    assert [(folder.parts, folder.files) for folder in found] == [
        (("kept", "job", "export", "1"), ("saved_model.pb",)),
    ]
    written = kept.trees.info("kept", "job/export/1/saved_model.pb").created_us
    assert found[0].time_us == written


def test_event_files_are_followed_there(kept: Kept) -> None:
    now = SECOND_US
    mirrors = Mirrors(kept.path / "mirrors", kept.trees, clock=lambda: now)
    folder = ("kept", "job")
    assert (mirrors.serves(folder), mirrors.serves(("here", "job"))) == (True, False)
    copy = kept.path / "mirrors" / "kept" / "job" / "eval" / "events.out.tfevents.1"
    first = kept.put("job/eval/events.out.tfevents.1", b"one")
    kept.put("job/model.ckpt", b"large")
    mirrors.refresh(folder)
    assert copy.read_bytes() == b"one"
    assert copy.stat().st_mtime_ns // 1000 >= first.created_us
    inode = copy.stat().st_ino
    kept.put("job/eval/events.out.tfevents.1", b"one two")
    mirrors.refresh(folder)
    assert copy.read_bytes() == b"one"  # it was looked at just now
    mirrors.refresh(folder, ended_us=now)
    assert (copy.read_bytes(), copy.stat().st_ino) == (b"one two", inode)
    kept.put("job/eval/events.out.tfevents.1", b"new")
    now += REFRESH_INTERVAL_US
    mirrors.refresh(folder)
    assert copy.read_bytes() == b"new"
    assert [path.name for path in (kept.path / "mirrors").rglob("*") if path.is_file()] == [copy.name]
    now += MIRROR_RETENTION_US + 1
    mirrors.refresh(("here", "another"))
    assert not copy.exists()
    mirrors.refresh(folder)
    assert copy.read_bytes() == b"new"
    mirrors.clear()
    assert not copy.exists()


def test_a_mirror_of_a_cloud_that_is_away_stays_behind_and_says_so(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    cloud = CloudBackend(S3Client("kept", "s3://no-such-bucket/x"))
    mirrors = Mirrors(kept.path / "mirrors", BackendRouter(kept.trees, {"kept": cloud}))
    mirrors.refresh(("kept", "job"))
    mirrors.refresh(("kept", "job"), ended_us=1)
    assert [record.getMessage()[:40] for record in caplog.records if record.name == "trainshed.mirrors"] == [
        "mirror.behind folder=gs://kept/job reaso"
    ]
