"""Archives made to do harm: nothing is written outside, nothing is written twice, and nothing grows without limit."""

from __future__ import annotations

import gzip
import io
import os
import resource
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainshed.node.archives.extract import BadArchiveError, Limits, check, extract

Add = tuple[tarfile.TarInfo, bytes]


def _file(name: str, content: bytes = b"x", **fields: object) -> Add:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def _special(name: str, kind: bytes, target: str = "") -> Add:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


def _tar(path: Path, *members: Add, mode: str = "w:gz", form: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, mode, format=form) as archive:  # type: ignore[call-overload]
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return path


def _zip(path: Path, *members: tuple[str, bytes, int]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return path


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / "deep" / "er" / "into"
    folder.mkdir(parents=True)
    return folder


HOSTILE: dict[str, tuple[list[Add], str]] = {
    "parent": ([_file("../out")], r"'\.\./out' leads out"),
    "parent within": ([_file("a/../../out")], "leads out"),
    "absolute": ([_file("/tmp/out-of-the-archive")], "absolute"),
    "symbolic link": ([_special("a", tarfile.SYMTYPE, "..")], "'a' is a symbolic link"),
    "write through a link": ([_special("a", tarfile.SYMTYPE, "/tmp"), _file("a/out")], "symbolic link"),
    "hard link": ([_special("a", tarfile.LNKTYPE, "../../../x")], "hard link"),
    "device": ([_special("a", tarfile.CHRTYPE)], "device"),
    "block device": ([_special("a", tarfile.BLKTYPE)], "device"),
    "pipe": ([_special("a", tarfile.FIFOTYPE)], "named pipe"),
    "twice": ([_file("a"), _file("./a")], "'./a' is there twice"),
    "file as folder": ([_file("a"), _file("a/b")], "below a file"),
    "folder as file": ([_special("a", tarfile.DIRTYPE), _file("a")], "'a' is there twice"),
    "long name": ([_file("n" * 300)], "too long"),
    "long path": ([_file("/".join(["n" * 200] * 30))], "too long"),
    "deep path": ([_file("a/" * 400 + "b")], "too long"),
    "backslash": ([_file("..\\out")], "no file can have"),
    "no name": ([_file("./")], "without a name"),
    "nothing": ([], "holds no files"),
}


@pytest.mark.fault("F35")
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT], ids=["pax", "gnu"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_tar(tmp_path: Path, into: Path, name: str, form: int) -> None:
    members, words = HOSTILE[name]
    archive = _tar(tmp_path / "evil.tar.gz", *members, form=form)
    before = {path for path in tmp_path.rglob("*") if into not in path.parents}
    with pytest.raises(BadArchiveError, match=words):
        extract(str(archive), str(into))
    with pytest.raises(BadArchiveError):
        check(str(archive)) if "folder" not in name else extract(str(archive), str(into))
    assert {path for path in tmp_path.rglob("*") if into not in path.parents} == before
    assert not any(path.is_symlink() for path in into.rglob("*"))


@pytest.mark.fault("F35")
@pytest.mark.parametrize(
    ("member", "words"),
    [
        (("../out", b"x", 0o644), "leads out"),
        (("/out", b"x", 0o644), "absolute"),
        (("link", b"/etc/passwd", stat.S_IFLNK | 0o777), "link or a device"),
        (("pipe", b"", stat.S_IFIFO | 0o644), "link or a device"),
        (("a\\..\\b", b"x", 0o644), "no file can have"),
    ],
)
def test_hostile_zip(tmp_path: Path, into: Path, member: tuple[str, bytes, int], words: str) -> None:
    archive = _zip(tmp_path / "evil.zip", member)
    with pytest.raises(BadArchiveError, match=words):
        extract(str(archive), str(into))
    with pytest.raises(BadArchiveError, match=words):
        check(str(archive))
    assert list(into.iterdir()) == []


def test_a_name_in_a_zip_that_holds_a_nul(tmp_path: Path, into: Path) -> None:
    archive = _zip(tmp_path / "evil.zip", ("aXb", b"x", 0o644))
    archive.write_bytes(archive.read_bytes().replace(b"aXb", b"a\0b"))
    with pytest.raises(BadArchiveError, match="no file can have"):
        extract(str(archive), str(into))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_zip_with_a_name_twice(tmp_path: Path, into: Path) -> None:
    archive = _zip(tmp_path / "evil.zip", ("a", b"1", 0o644), ("a", b"2", 0o644))
    with pytest.raises(BadArchiveError, match="twice"):
        extract(str(archive), str(into))
    assert _tree(into) == {"a": b"1"}


def test_setuid_and_write_for_others_are_dropped(tmp_path: Path, into: Path) -> None:
    extract(str(_tar(tmp_path / "a.tar.gz", _file("run", mode=0o6777), _file("none", mode=0))), str(into))
    assert stat.S_IMODE((into / "run").stat().st_mode) & ~0o755 == 0
    assert os.access(into / "run", os.X_OK)
    assert stat.S_IMODE((into / "none").stat().st_mode) == 0o600


def test_an_honest_archive_comes_out_whole(tmp_path: Path, into: Path) -> None:
    long = "/".join(["name"] * 40) + "/ä.py"
    members = [_special("pkg", tarfile.DIRTYPE), _file("./pkg/a.py", b"1" * 70_000), _file(long, b""), _file("b" * 150)]
    forms = (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)
    for number, (form, mode) in enumerate((form, mode) for form in forms for mode in ("w", "w:gz", "w:bz2", "w:xz")):
        folder = into / str(number)
        folder.mkdir()
        extract(str(_tar(tmp_path / "good.tar", *members, mode=mode, form=form)), str(folder))
        assert _tree(folder) == {"pkg/a.py": b"1" * 70_000, long: b"", "b" * 150: b"x"}


def test_an_honest_zip_comes_out_whole(tmp_path: Path, into: Path) -> None:
    archive = _zip(
        tmp_path / "good.zip", ("pkg/", b"", stat.S_IFDIR | 0o755), ("pkg/ä.py", b"1" * 70_000, 0), ("e", b"", 0)
    )
    check(str(archive))
    extract(str(archive), str(into))
    assert _tree(into) == {"pkg/ä.py": b"1" * 70_000, "e": b""}


@pytest.mark.fault("F34")
@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_an_archive_cut_short_anywhere_is_noticed(tmp_path: Path, mode: str) -> None:
    whole = _tar(tmp_path / "a.tar", *(_file(f"f{n}", os.urandom(600)) for n in range(4)), mode=mode).read_bytes()
    end = 4 * (512 + 1024) if mode == "w" else len(whole) - 1  # plain: what comes after the last member is padding
    for number, size in enumerate(range(0, end, max(1, end // 37))):
        folder = tmp_path / str(number)
        folder.mkdir()
        (tmp_path / "cut.tar").write_bytes(whole[:size])
        with pytest.raises(BadArchiveError):
            extract(str(tmp_path / "cut.tar"), str(folder))


def test_a_zip_cut_short_or_damaged_is_noticed(tmp_path: Path, into: Path) -> None:
    whole = _zip(tmp_path / "a.zip", ("a", os.urandom(2000), 0)).read_bytes()
    for size in range(0, len(whole) - 1, 97):
        (tmp_path / "cut.zip").write_bytes(whole[:size])
        with pytest.raises(BadArchiveError):
            check(str(tmp_path / "cut.zip"))
    (tmp_path / "bad.zip").write_bytes(whole[:500] + bytes([whole[500] ^ 1]) + whole[501:])
    with pytest.raises(BadArchiveError, match="damaged"):
        check(str(tmp_path / "bad.zip"))


MEMBERS_LIMIT = 2000  #: of archives whose members are written until then; the usual limit is ten times that


def _big_tar(path: Path, write: Callable[[gzip.GzipFile], None]) -> Path:
    with gzip.GzipFile(path, "wb", compresslevel=1) as out:
        write(out)
    return path


def _zeros(out: gzip.GzipFile, size: int) -> None:
    for _ in range(size >> 20):
        out.write(bytes(1 << 20))


def _bomb_file(out: gzip.GzipFile) -> None:
    out.write(_file("zeros", b"", size=300 << 20)[0].tobuf(tarfile.GNU_FORMAT))
    _zeros(out, 300 << 20)


def _bomb_header(out: gzip.GzipFile) -> None:
    header = tarfile.TarInfo("PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 300 << 20
    out.write(header.tobuf(tarfile.GNU_FORMAT))
    _zeros(out, 300 << 20)


def _bomb_folder(out: gzip.GzipFile) -> None:
    header = tarfile.TarInfo("folder")
    header.type = tarfile.DIRTYPE
    block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = b"%011o\0" % (300 << 20)
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + sum(block[156:]) + 256)
    out.write(bytes(block))
    _zeros(out, 300 << 20)


def _bomb_members(out: gzip.GzipFile) -> None:
    for n in range(MEMBERS_LIMIT + 1000):
        out.write(tarfile.TarInfo(f"m{n}").tobuf(tarfile.GNU_FORMAT))


def _bomb_headers(out: gzip.GzipFile) -> None:
    header = tarfile.TarInfo("PaxHeader")
    header.type, header.size = tarfile.XGLTYPE, 0
    for _ in range(MEMBERS_LIMIT + 1000):
        out.write(header.tobuf(tarfile.GNU_FORMAT))


ZIP_MEMBERS = 300_000


def _zip_directory(path: Path, end: Callable[[int, int], bytes], *, members: int = ZIP_MEMBERS, note: int = 0) -> Path:
    """A directory of many entries for one and the same content. `end` makes what follows, of its size and offset."""
    fields = (20, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, note, 0, 0, 0, 0)
    entry = b"PK\x01\x02" + struct.pack("<HHHHHHIIIHHHHHII", *fields) + b"a" + bytes(note)
    with path.open("wb") as out:
        out.write(b"PK\x03\x04" + struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 33, 0, 0, 0, 1, 0) + b"a")
        out.write(entry * members)
        out.write(end(len(entry) * members, 31))
    return path


def _zip_end(count: int, size: int, offset: int, comment: bytes = b"") -> bytes:
    return b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, count, count, size, offset, len(comment)) + comment


def _zip64_end(count: int, size: int, offset: int) -> bytes:
    fields = (44, 45, 45, 0, 0, count, count, size, offset)
    return b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", *fields) + b"PK\x06\x07" + struct.pack("<IQI", 0, offset + size, 1)


ZIP_ENDS: dict[str, Callable[[int, int], bytes]] = {
    "a count that is too small": lambda size, offset: _zip_end(7, size, offset),
    "a count of nothing": lambda size, offset: _zip_end(0, size, offset),
    "zip64": lambda size, offset: _zip64_end(ZIP_MEMBERS, size, offset) + _zip_end(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
    "zip64 behind a small plain end": lambda size, offset: (
        _zip64_end(ZIP_MEMBERS, size, offset) + _zip_end(1, 47, offset)
    ),
    "zip64 behind a plain end of nothing": lambda size, offset: (
        _zip64_end(ZIP_MEMBERS, size, offset) + _zip_end(0, 0, 0)
    ),
    "zip64 with a count that is too small": lambda size, offset: _zip64_end(1, size, offset) + _zip_end(1, 47, offset),
    "zip64 before the longest comment": lambda size, offset: (
        _zip64_end(ZIP_MEMBERS, size, offset) + _zip_end(1, 47, offset, b"c" * 0xFFFF)
    ),
}


@pytest.mark.fault("F35")
@pytest.mark.parametrize("bomb", [_bomb_file, _bomb_header, _bomb_folder, _bomb_members, _bomb_headers])
def test_a_bomb_is_refused_in_little_memory(tmp_path: Path, into: Path, bomb: Callable[[gzip.GzipFile], None]) -> None:
    _refused_in_little_memory(_big_tar(tmp_path / "bomb.tar.gz", bomb), into, members=MEMBERS_LIMIT)


@pytest.mark.fault("F35")
@pytest.mark.parametrize("end", list(ZIP_ENDS))
def test_a_zip_of_countless_members_is_refused_in_little_memory(tmp_path: Path, into: Path, end: str) -> None:
    archive = _zip_directory(tmp_path / "bomb.zip", ZIP_ENDS[end])
    said = _refused_in_little_memory(archive, into, members=Limits().members)
    assert "holds more than 20000 members" in said or "larger than a package may be (zip64)" in said


def test_a_zip_of_few_members_with_a_vast_directory_is_refused(tmp_path: Path) -> None:
    archive = _zip_directory(
        tmp_path / "bomb.zip", lambda size, offset: _zip_end(600, size, offset), members=600, note=60_000
    )
    with pytest.raises(BadArchiveError, match="directory of more than 33554432 bytes"):
        check(str(archive))


def test_a_zip_whose_directory_begins_before_the_file_is_refused(tmp_path: Path) -> None:
    archive = _zip_directory(tmp_path / "bomb.zip", lambda size, offset: _zip_end(1, 10 * size, 0), members=1)
    with pytest.raises(BadArchiveError, match="directory is missing"):
        check(str(archive))


def _refused_in_little_memory(archive: Path, into: Path, *, members: int) -> str:
    """Returns what the extractor said."""
    code = (
        "import sys\n"
        "from trainshed.node.archives.extract import BadArchiveError, Limits, extract\n"
        "try:\n"
        "    extract(sys.argv[1], sys.argv[2], Limits(members=int(sys.argv[3])))\n"
        "except BadArchiveError as exc:\n"
        "    print(exc)\n"
        "    sys.exit(7)\n"
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))

    done = subprocess.run(
        [sys.executable, "-c", code, archive, into, str(members)],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert sum(path.stat().st_size for path in into.rglob("*")) < 64 << 20
    return done.stdout


def test_limits_can_be_set(tmp_path: Path, into: Path) -> None:
    assert Limits().members == 20_000
    archive = str(_tar(tmp_path / "a.tar.gz", _file("a", b"1" * 100), _file("b", b"1" * 100)))
    check(archive, Limits(members=2, size=200))
    with pytest.raises(BadArchiveError, match="more than 1 members"):
        check(archive, Limits(members=1))
    with pytest.raises(BadArchiveError, match="more than 199 bytes; the limit was reached in 'b'"):
        check(archive, Limits(size=199))


NAMES = st.lists(
    st.sampled_from(["a", "b", "..", ".", "", "/", "ä", "x" * 99, "\\", "c.py", " ", "\n"]), min_size=1, max_size=5
).map("/".join)
KINDS = st.sampled_from([tarfile.REGTYPE] * 4 + [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
MEMBERS = st.lists(st.tuples(NAMES, KINDS, st.binary(max_size=1500), NAMES), max_size=6)


@pytest.mark.fault("F35")
@settings(max_examples=300, deadline=None)
@given(members=MEMBERS, form=st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]), flip=st.integers(-1, 4000))
def test_any_tar_stays_where_it_is_put(
    tmp_path_factory: pytest.TempPathFactory,
    members: list[tuple[str, bytes, bytes, str]],
    form: int,
    flip: int,
) -> None:
    root = Path(tempfile.mkdtemp(dir=tmp_path_factory.getbasetemp()))
    into = root / "outer" / "into"
    into.mkdir(parents=True)
    adds = [
        _file(name, content) if kind == tarfile.REGTYPE else _special(name, kind, target)
        for name, kind, content, target in members
    ]
    data = bytearray(_tar(root / "any.tar", *adds, mode="w", form=form).read_bytes())
    if 0 <= flip < len(data):
        data[flip] ^= 0x41
    (root / "any.tar").write_bytes(data)
    try:
        extract(str(root / "any.tar"), str(into))
        fine = True
    except BadArchiveError as exc:
        fine = False
        assert str(exc).endswith(".")
        assert "\n" not in str(exc)
    assert {path.name for path in root.iterdir()} == {"any.tar", "outer"}
    assert [path.name for path in (root / "outer").iterdir()] == ["into"]
    assert not any(path.is_symlink() or path.is_fifo() for path in into.rglob("*"))
    if fine and flip < 0:
        wanted = sorted(content for _, kind, content, _ in members if kind == tarfile.REGTYPE)
        assert sorted(_tree(into).values()) == wanted


@settings(max_examples=200, deadline=None)
@given(
    data=st.binary(max_size=2000), magic=st.sampled_from([b"", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b\x08", b"BZh9"])
)
def test_noise_is_refused_with_a_sentence(tmp_path_factory: pytest.TempPathFactory, data: bytes, magic: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "noise"
    path.write_bytes(magic + data)
    with pytest.raises(BadArchiveError, match=r"\.$"):
        check(str(path))
