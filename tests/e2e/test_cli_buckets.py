"""Trainshed's own bucket commands against a real server, by gsutil's rules."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainshed.cli import main
from trainshed.testing.processes.servers import RunningServer

NUMBERS = itertools.count(1)


@pytest.fixture
def run(server: RunningServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """`trainshed buckets ...` in a folder with a few files."""
    for name in list(os.environ):
        if name.startswith("TRAINSHED_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TRAINSHED_HOME", str(server.home))
    monkeypatch.setenv("TRAINSHED_PROJECT", "cli-buckets")
    work = tmp_path / "work"
    (work / "dir" / "sub").mkdir(parents=True)
    (work / "dest").mkdir()
    (work / "a.txt").write_text("aaa")
    (work / "b.txt").write_text("bb")
    (work / "dir" / "x.csv").write_text("x" * 2000)
    (work / "dir" / "sub" / "y.csv").write_text("y")
    monkeypatch.chdir(work)

    def invoke(*words: str, fails: bool = False, stdin: bytes | None = None) -> Result:
        done = CliRunner().invoke(main, ["buckets", *words], prog_name="trainshed", input=stdin)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
        assert done.exit_code == int(fails), done.output
        return done

    return invoke


@pytest.fixture
def bucket(run: Callable[..., Result]) -> str:
    name = f"gs://cli-buckets-{next(NUMBERS)}"
    assert run("mb", name).stderr == f"Creating {name}/...\n"
    return name


def names(run: Callable[..., Result], bucket: str) -> list[str]:
    return [line.removeprefix(f"{bucket}/") for line in run("ls", f"{bucket}/**").stdout.split()]


def below(folder: str) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("before", "words", "made"),
    [
        ([], ["a.txt", ""], "a.txt"),
        ([], ["a.txt", "/obj"], "obj"),
        ([], ["a.txt", "/fold/"], "fold/a.txt"),
        (["a.txt", "/fold/"], ["b.txt", "/fold"], "fold/a.txt fold/b.txt"),
        ([], ["a.txt", "b.txt", "/new"], "new/a.txt new/b.txt"),
        ([], ["-r", "dir", ""], "dir/sub/y.csv dir/x.csv"),
        ([], ["-r", "dir", "/new"], "new/sub/y.csv new/x.csv"),
        ([], ["-r", "dir", "/new/"], "new/dir/sub/y.csv new/dir/x.csv"),
        (["a.txt", "/old/"], ["-r", "dir", "/old"], "old/a.txt old/dir/sub/y.csv old/dir/x.csv"),
        ([], ["-r", "dir", "a.txt", "/multi"], "multi/a.txt multi/dir/sub/y.csv multi/dir/x.csv"),
        ([], ["-r", "dir/*", "/wild"], "wild/sub/y.csv wild/x.csv"),
        ([], ["*.txt", "/texts/"], "texts/a.txt texts/b.txt"),
    ],
)
def test_uploads_get_the_names_that_gsutil_gives(
    run: Callable[..., Result], bucket: str, before: list[str], words: list[str], made: str
) -> None:
    for command in (before, words):
        if command:
            run("cp", *command[:-1], bucket + command[-1])
    assert names(run, bucket) == made.split()


@pytest.mark.parametrize(
    ("words", "made"),
    [
        (["/dir/x.csv", "dest"], "x.csv"),
        (["/dir/x.csv", "dest/c"], "c"),
        (["/dir/x.csv", "dest/made/c"], "made/c"),
        (["-r", "/dir", "dest"], "dir/sub/y.csv dir/x.csv"),
        (["-r", "/dir/*", "dest"], "sub/y.csv x.csv"),
        (["/dir/**", "dest"], "x.csv y.csv"),
        (["/dir/*.csv", "dest"], "x.csv"),
        (["/dir/x.csv", "/dir/sub/y.csv", "dest"], "x.csv y.csv"),
    ],
)
def test_downloads_get_the_names_that_gsutil_gives(
    run: Callable[..., Result], bucket: str, words: list[str], made: str
) -> None:
    run("cp", "-r", "dir", bucket)
    run("cp", *(bucket + word if word.startswith("/") else word for word in words))
    assert below("dest") == made.split()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dir", "B/x"], "dir is a directory. Copy it with -r."),
        (["absent", "B/x"], "No URLs matched: absent"),
        (["B/absent", "dest"], "No URLs matched: B/absent"),
        (["B/dir", "dest"], "Copy it with -r"),
        (["-r", "B/dir", "dest/none"], "Destination URL must name a directory"),
        (["B/dir/x.csv", "none/"], "There is no directory none/"),
        (["a.txt", "b.txt"], "Both sides are local"),
        (["B/**", "B/flat/"], "would both be copied to B/flat/x.csv"),
        (["-", "B/fold/"], "Destination object name needed when source is a stream."),
        (["a.txt", "gs://cli-no-such-bucket/x"], "cli-no-such-bucket"),
    ],
)
def test_a_copy_that_makes_no_sense_is_refused_in_words(
    run: Callable[..., Result], bucket: str, words: list[str], message: str
) -> None:
    run("cp", "-r", "dir", bucket)
    run("cp", "dir/x.csv", f"{bucket}/other/x.csv")
    done = run("cp", *(word.replace("B/", f"{bucket}/") for word in words), fails=True)
    assert done.stderr.startswith("ERROR: (trainshed.buckets.cp) ")
    assert message.replace("B/", f"{bucket}/") in done.stderr
    assert below("dest") == []


def test_bytes_survive_the_way_there_between_buckets_and_back(run: Callable[..., Result], bucket: str) -> None:
    data = os.urandom(20 << 20)  # more than two chunks of a resumable upload
    Path("big").write_bytes(data)
    run("cp", "big", bucket)
    run("cp", f"{bucket}/big", f"{bucket}/copy")
    run("cp", f"{bucket}/copy", "dest")
    assert Path("dest/copy").read_bytes() == data
    assert run("cat", f"{bucket}/copy").stdout_bytes == data
    assert below("dest") == ["copy"]  # nothing of a half-done download


@pytest.mark.parametrize("size", [0, 5, (8 << 20) + 3, 16 << 20])
def test_streams_go_in_and_out(server: RunningServer, bucket: str, size: int) -> None:
    data = os.urandom(size)
    command = [sys.executable, "-m", "trainshed.cli", "buckets", "cp"]
    env = server.env() | {"TRAINSHED_PROJECT": "cli-buckets"}
    subprocess.run([*command, "-", f"{bucket}/stream"], env=env, input=data, check=True, capture_output=True)
    back = subprocess.run([*command, f"{bucket}/stream", "-"], env=env, check=True, capture_output=True)
    assert back.stdout == data
    assert back.stderr == b""


def test_odd_names_survive(run: Callable[..., Result], bucket: str) -> None:
    odd = ["a b", "ü%2F?#&=+", "[1]", "x:y", "'\""]
    for name in odd:
        Path("dir", name).write_text(name)
    run("cp", "-r", "dir", bucket)
    run("cp", "-r", f"{bucket}/dir", "dest")
    assert [Path("dest/dir", name).read_text() for name in odd] == odd


def test_a_name_that_is_not_utf_8_is_refused_in_words(run: Callable[..., Result], bucket: str) -> None:
    Path(os.fsdecode(b"dir/\xff")).write_text("")
    assert "is not UTF-8" in run("cp", "-r", "dir", bucket, fails=True).stderr


def test_listings_look_like_gsutils(run: Callable[..., Result], bucket: str) -> None:
    run("cp", "-r", "dir", "a.txt", bucket)
    assert run("ls", bucket).stdout == f"{bucket}/a.txt\n{bucket}/dir/\n"
    assert run("ls", f"{bucket}/dir").stdout == f"{bucket}/dir/x.csv\n{bucket}/dir/sub/\n"
    assert run("ls", "-d", f"{bucket}/dir").stdout == f"{bucket}/dir/\n"
    assert run("ls", f"{bucket}/**.csv").stdout == f"{bucket}/dir/sub/y.csv\n{bucket}/dir/x.csv\n"
    assert run("ls", "-r", bucket).stdout.splitlines() == [
        *(f"{bucket}/a.txt", f"{bucket}/dir/:", f"{bucket}/dir/x.csv", ""),
        *(f"{bucket}/dir/sub/:", f"{bucket}/dir/sub/y.csv"),
    ]
    assert run("ls", f"{bucket}/*").stdout.splitlines() == [
        *(f"{bucket}/a.txt", "", f"{bucket}/dir/:", f"{bucket}/dir/x.csv", f"{bucket}/dir/sub/"),
    ]
    long = run("ls", "-l", f"{bucket}/dir").stdout.splitlines()
    assert long[0].split()[0] == "2000"
    assert long[0].endswith(f"Z  {bucket}/dir/x.csv")
    assert long[1:] == [f"{' ' * 33}{bucket}/dir/sub/", "TOTAL: 1 objects, 2000 bytes (1.95 KiB)"]
    assert f"{bucket}/\n" in run("ls").stdout
    missing = run("ls", f"{bucket}/none", f"{bucket}/a.txt", fails=True)
    assert missing.stdout == f"{bucket}/a.txt\n"
    assert "One or more URLs matched no objects." in missing.stderr


def test_sizes_are_summed_by_folder(run: Callable[..., Result], bucket: str) -> None:
    run("cp", "-r", "dir", "a.txt", bucket)
    assert run("du", bucket).stdout.splitlines() == [
        f"3            {bucket}/a.txt",
        f"2000         {bucket}/dir/x.csv",
        f"1            {bucket}/dir/sub/y.csv",
        f"1            {bucket}/dir/sub/",
        f"2001         {bucket}/dir/",
        f"2004         {bucket}",
    ]
    assert run("du", "-s", "-h", bucket).stdout == f"1.96 KiB     {bucket}\n"
    assert run("du", "-s", "-c", f"{bucket}/dir", f"{bucket}/a.txt").stdout.splitlines()[-1] == "2004         total"


def test_stat_shows_what_is_known(run: Callable[..., Result], bucket: str) -> None:
    run("cp", "dir/x.csv", f"{bucket}/x.csv")
    shown = run("stat", f"{bucket}/x.csv").stdout.splitlines()
    assert shown[0] == f"{bucket}/x.csv:"
    assert "    Content-Length:         2000" in shown
    assert "    Content-Type:           text/csv" in shown
    assert run("stat", "--format", "value(size)", f"{bucket}/x.csv").stdout == "2000\n"
    assert "No URLs matched" in run("stat", f"{bucket}/none", fails=True).stderr


def test_removing(run: Callable[..., Result], bucket: str) -> None:
    run("cp", "-r", "dir", "a.txt", "b.txt", bucket)
    assert "No URLs matched" in run("rm", f"{bucket}/dir", fails=True).stderr
    assert "No URLs matched" in run("rm", "-r", f"{bucket}/none", fails=True).stderr
    forced = run("rm", "-rf", f"{bucket}/none", fails=True).stderr
    assert f"{bucket}/none: " in forced
    assert "1 files/objects could not be removed." in forced
    assert run("rm", f"{bucket}/a.txt").stderr == f"Removing {bucket}/a.txt...\n"
    run("rm", "-r", f"{bucket}/dir")
    assert names(run, bucket) == ["b.txt"]
    run("-m", "-q", "rm", "-r", bucket)
    assert f"{bucket}/\n" not in run("ls").stdout


def test_an_empty_bucket_is_removed_too(run: Callable[..., Result], bucket: str) -> None:
    run("rm", "-r", bucket)
    assert f"{bucket}/\n" not in run("ls").stdout


def test_rsync_copies_what_differs_and_removes_what_is_gone_if_told_to(run: Callable[..., Result], bucket: str) -> None:
    run("rsync", "-r", "dir", f"{bucket}/sync")
    assert names(run, bucket) == ["sync/sub/y.csv", "sync/x.csv"]
    assert "Copying" not in run("rsync", "-r", "dir", f"{bucket}/sync").stderr
    Path("dir/x.csv").write_text("z" * 2000)  # as long as before
    Path("dir/sub/y.csv").unlink()
    second = run("rsync", "-r", "dir", f"{bucket}/sync").stderr
    assert second.count("Copying") == 1
    assert run("cat", f"{bucket}/sync/x.csv").stdout == "z" * 2000
    run("rsync", "-r", "-d", "dir", f"{bucket}/sync")
    assert names(run, bucket) == ["sync/x.csv"]
    Path("dest/extra").write_text("")
    run("rsync", "-d", f"{bucket}/sync", "dest")
    assert below("dest") == ["x.csv"]
    assert "does not name a directory" in run("rsync", "nodir", f"{bucket}/sync", fails=True).stderr


def test_a_bucket_belongs_to_the_project_it_was_made_for(run: Callable[..., Result]) -> None:
    name = f"gs://cli-buckets-{next(NUMBERS)}"
    run("mb", "-p", "cli-other", "-l", "us-east1", "-c", "regional", name)
    assert f"{name}/" not in run("ls").stdout
    assert run("ls", "-p", "cli-other").stdout == f"{name}/\n"
    again = run("mb", name, fails=True)
    assert again.stderr.splitlines()[-1].startswith("ERROR: (trainshed.buckets.mb) ")


def test_the_progress_bar_is_for_those_who_want_it(run: Callable[..., Result], bucket: str) -> None:
    plain = run("cp", "a.txt", bucket)
    assert plain.stderr == "Copying file://a.txt...\n\nOperation completed over 1 objects/3 B.\n"
    assert plain.stdout == ""
    barred = run("cp", "--progress", "a.txt", bucket)
    assert "Copying" not in barred.stderr
    assert "3/3 bytes" in barred.stderr
    assert run("-q", "cp", "a.txt", bucket).stderr == ""
