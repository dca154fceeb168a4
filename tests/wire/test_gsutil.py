"""gsutil from PyPI, unmodified, over TLS, with a refresh token.

Each call of it is a process that imports for more than a second. So each command is called once or twice, and what it
needs to find is uploaded by a plain request.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from trainshed.testing.processes.servers import RunningServer

PROJECT = "wire-gsutil"
BUCKET = "gs://gsutil-tests"


class Gsutil:
    """gsutil in a home of its own, so that nothing of the machine's settings reaches it."""

    def __init__(self, server: RunningServer, home: Path) -> None:
        address = urlsplit(server.tls_url)
        config = home / "boto"
        config.write_text(
            f"[Credentials]\n"
            f"gs_json_host = {address.hostname}\n"
            f"gs_json_port = {address.port}\n"
            f"gs_oauth2_refresh_token = {server.token}\n"
            f"[Boto]\n"
            f"ca_certificates_file = {server.authority}\n"
            f"num_retries = 1\n"
            f"[GSUtil]\n"
            f"default_project_id = {PROJECT}\n"
            f"software_update_check_period = 0\n"
            f"state_dir = {home / 'state'}\n"
            f"[OAuth2]\n"
            f"client_id = trainshed\n"
            f"client_secret = none\n"
            f"token_cache = in_memory\n"
            f"provider_token_uri = {server.tls_url}/token\n"
            f"provider_authorization_uri = {server.tls_url}/auth\n"
        )
        self._home = home
        self._env = {"PATH": os.environ["PATH"], "HOME": str(home), "BOTO_CONFIG": str(config), "LANG": "C.UTF-8"}

    def __call__(self, *words: str, fails: bool = False, stdin: bytes | None = None) -> str:
        """Run it; its stdout and stderr."""
        program = Path(sys.executable).with_name("gsutil")
        done = subprocess.run(
            [str(program), *words], env=self._env, cwd=self._home, input=stdin, capture_output=True, timeout=120
        )
        text = done.stdout.decode() + done.stderr.decode()
        assert (done.returncode != 0) == fails, text
        return text


@pytest.fixture(scope="module")
def gsutil(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gsutil]:
    run = Gsutil(server, tmp_path_factory.mktemp("gsutil"))
    assert f"Creating {BUCKET}/..." in run("mb", "-l", "us-central1", BUCKET)
    yield run
    run("-m", "rm", "-r", BUCKET)
    assert BUCKET not in run("ls")


@pytest.fixture
def stored(server: RunningServer) -> Path:
    """Where the server keeps the bucket's objects: what gsutil does is seen there."""
    return server.home / "buckets" / BUCKET.removeprefix("gs://")


@pytest.fixture
def upload(server: RunningServer, gsutil: Gsutil) -> Callable[[str, bytes], None]:
    """Stores an object without gsutil."""

    def put(name: str, data: bytes) -> None:
        target = f"/upload/storage/v1/b/{BUCKET.removeprefix('gs://')}/o?uploadType=media&name={quote(name, safe='')}"
        server.call("POST", target, data)

    return put


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("one.txt", "sub/two.txt", "sub/deeper/three.bin"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "tree"


def test_a_bucket_that_is_there_can_not_be_made_again(gsutil: Gsutil) -> None:
    assert "already exists" in gsutil("mb", BUCKET, fails=True)
    assert f"{BUCKET}/\n" in gsutil("ls")


def test_cp_up_and_down_small_and_large(gsutil: Gsutil, stored: Path, tmp_path: Path) -> None:
    small, large = tmp_path / "small.csv", tmp_path / "large.bin"
    small.write_text("a,b\n1,2\n")
    large.write_bytes(os.urandom(9 << 20))  # over gsutil's threshold for resumable uploads
    gsutil("cp", str(small), str(large), f"{BUCKET}/cp/")
    assert (stored / "cp" / "small.csv").read_bytes() == small.read_bytes()
    assert (stored / "cp" / "large.bin").read_bytes() == large.read_bytes()
    gsutil("cp", f"{BUCKET}/cp/large.bin", str(tmp_path / "back.bin"))
    assert (tmp_path / "back.bin").read_bytes() == large.read_bytes()
    gsutil("cp", f"{BUCKET}/cp/small.csv", f"{BUCKET}/cp/copy.csv")
    assert (stored / "cp" / "copy.csv").read_bytes() == small.read_bytes()
    gsutil("cp", "-", f"{BUCKET}/cp/streamed", stdin=b"from a pipe")
    assert gsutil("cat", f"{BUCKET}/cp/streamed") == "from a pipe"


def test_what_a_program_wrote_as_a_file_is_an_object(gsutil: Gsutil, stored: Path) -> None:
    (stored / "trained").mkdir(parents=True)
    (stored / "trained" / "weights.txt").write_text("0.5\n")
    assert gsutil("cat", f"{BUCKET}/trained/weights.txt") == "0.5\n"


def test_cp_r_and_parallel_cp(gsutil: Gsutil, stored: Path, tree: Path, tmp_path: Path) -> None:
    gsutil("cp", "-r", str(tree), f"{BUCKET}/folders")
    gsutil("-m", "cp", "-r", str(tree), f"{BUCKET}/parallel")
    wanted = {str(path.relative_to(tree)): path.read_text() for path in tree.rglob("*.*")}
    for name in ("folders", "parallel"):
        base = next((stored / name).rglob("one.txt")).parent
        assert {str(path.relative_to(base)): path.read_text() for path in base.rglob("*.*")} == wanted
    (tmp_path / "down").mkdir()
    gsutil("-m", "cp", "-r", f"{BUCKET}/parallel/*", str(tmp_path / "down"))
    assert next((tmp_path / "down").rglob("three.bin")).read_text() == "sub/deeper/three.bin"


def test_ls_stat_and_du(gsutil: Gsutil, upload: Callable[[str, bytes], None]) -> None:
    for name in ("a", "b/c"):
        upload(f"listed/{name}", b"12345")
    assert gsutil("ls", f"{BUCKET}/listed").split() == [f"{BUCKET}/listed/a", f"{BUCKET}/listed/b/"]
    assert gsutil("ls", f"{BUCKET}/listed/**").split() == [f"{BUCKET}/listed/a", f"{BUCKET}/listed/b/c"]
    long = gsutil("ls", "-l", f"{BUCKET}/listed/")
    assert re.search(rf" 5  \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ  {BUCKET}/listed/a\n", long)
    assert "TOTAL: 1 objects, 5 bytes" in long
    shown = gsutil("stat", f"{BUCKET}/listed/a")
    assert "Content-Length:         5" in shown
    assert "Hash (md5):             gnzLDuqKcGxMNKFokfhOew==" in shown
    assert gsutil("du", "-s", f"{BUCKET}/listed").split() == ["10", f"{BUCKET}/listed"]
    assert "matched no objects" in gsutil("ls", f"{BUCKET}/absent", fails=True)


def test_rsync_copies_what_differs_and_deletes_the_rest(gsutil: Gsutil, stored: Path, tree: Path) -> None:
    first = gsutil("rsync", "-r", str(tree), f"{BUCKET}/synced")
    assert first.count("Copying ") == 3
    changed = tree / "one.txt"
    later_s = changed.stat().st_mtime + 10  # of files of one size, gsutil compares the time of change, in whole seconds
    changed.write_text("changed")
    os.utime(changed, (later_s, later_s))
    (tree / "sub" / "two.txt").unlink()
    second = gsutil("rsync", "-r", "-d", str(tree), f"{BUCKET}/synced")
    assert second.count("Copying ") == 1
    assert (stored / "synced" / "one.txt").read_text() == "changed"
    assert not (stored / "synced" / "sub" / "two.txt").exists()
    assert (stored / "synced" / "sub" / "deeper" / "three.bin").exists()


def test_mv_and_rm_r(gsutil: Gsutil, stored: Path, upload: Callable[[str, bytes], None]) -> None:
    for name in ("sub/two.txt", "sub/deeper/three.bin"):
        upload(f"moving/{name}", name.encode())
    gsutil("mv", f"{BUCKET}/moving", f"{BUCKET}/moved")
    assert not (stored / "moving").exists()
    assert (stored / "moved" / "sub" / "two.txt").read_text() == "sub/two.txt"
    gsutil("-m", "rm", "-r", f"{BUCKET}/moved")
    assert not (stored / "moved").exists()


def test_acl_ch_changes_nothing_and_the_server_says_so(
    gsutil: Gsutil, server: RunningServer, upload: Callable[[str, bytes], None]
) -> None:
    upload("shared", b"x")
    assert "Updated ACL" in gsutil("-m", "acl", "ch", "-u", "someone@example.com:W", BUCKET)
    assert "Updated ACL" in gsutil("acl", "ch", "-u", "someone@example.com:R", f"{BUCKET}/shared")
    assert "someone@example.com" not in gsutil("acl", "get", BUCKET)
    assert "acl.ignored" in server.log.read_text()


def test_a_wrong_token_opens_nothing(server: RunningServer, tmp_path: Path, gsutil: Gsutil) -> None:
    stranger = Gsutil(server, tmp_path)
    config = tmp_path / "boto"
    config.write_text(config.read_text().replace(server.token, "wrong"))
    assert "credentials are invalid" in stranger("ls", BUCKET, fails=True)
