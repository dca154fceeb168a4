"""A trainer's folder becomes one archive, the same for the same content, and the folder is left as it was."""

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from trainshed import packaging
from trainshed.errors import InvalidArgumentError


@pytest.fixture(autouse=True)
def own_temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temp folder of the test's own, which must be empty when it ends."""
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def trainer(tmp_path: Path) -> Path:
    package = tmp_path / "root" / "trainer"
    _write(
        package, {"__init__.py": "", "task.py": "print('hello')\n", "sub/__init__.py": "", "sub/model.py": "X = 1\n"}
    )
    return package


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


def _built(package: Path) -> tuple[str, bytes, list[str]]:
    """The archive's name, its bytes, and the names in it."""
    with packaging.build(package) as archive:
        with tarfile.open(archive.path) as tar:
            members = tar.getnames()
        content = archive.path.read_bytes()
    assert not archive.path.exists()
    return archive.path.name, content, members


def test_a_bare_folder_becomes_version_0(trainer: Path) -> None:
    _write(trainer, {"data/vocabulary.txt": "a\nb\n", "more/loose.py": "Y = 2\n"})
    _write(trainer, {"__pycache__/task.cpython-311.pyc": "", ".secret": "s", ".git/config": "g", "old.pyc": ""})
    before = _snapshot(trainer.parent)
    name, _, members = _built(trainer)
    assert name == "trainer-0.0.0.tar.gz"
    assert members == sorted(
        "trainer-0.0.0/" + rest
        for rest in (
            "MANIFEST.in",
            "PKG-INFO",
            "setup.py",
            "trainer/__init__.py",
            "trainer/data/vocabulary.txt",
            "trainer/more/loose.py",
            "trainer/sub/__init__.py",
            "trainer/sub/model.py",
            "trainer/task.py",
        )
    )
    assert _snapshot(trainer.parent) == before


def test_what_a_bare_folder_holds_arrives_when_it_is_installed(trainer: Path, tmp_path: Path) -> None:
    _write(trainer, {"data/vocabulary.txt": "a\nb\n", "more/loose.py": "Y = 2\n", "setup.py": "raise SystemExit(1)\n"})
    with packaging.build(trainer) as archive, tarfile.open(archive.path) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    source = tmp_path / "unpacked" / "trainer-0.0.0"
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build", f"--build-lib={site}"], cwd=source, check=True, capture_output=True
    )
    code = "import trainer.task, trainer.sub.model, trainer.more.loose; print(trainer.__path__[0])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(site)}, check=True, capture_output=True, text=True, cwd="/"
    )
    assert done.stdout.splitlines() == ["hello", str(site / "trainer")]
    assert (site / "trainer/data/vocabulary.txt").read_text() == "a\nb\n"


@pytest.mark.parametrize(
    "setup",
    [
        {},
        {"setup.py": "from setuptools import setup\nsetup(name='mine', version='1.2', packages=['trainer'])\n"},
    ],
    ids=["bare", "setup.py"],
)
def test_the_same_content_gives_the_same_bytes(trainer: Path, setup: dict[str, str]) -> None:
    _write(trainer.parent, setup)
    first = _built(trainer)
    for path in trainer.rglob("*"):
        os.utime(path, (1_500_000_000, 1_500_000_000))
    assert _built(trainer) == first
    (trainer / "task.py").write_text("print('other')\n")
    assert _built(trainer)[1] != first[1]


def test_nothing_of_the_user_is_in_the_archive_but_the_code(trainer: Path) -> None:
    (trainer / "task.py").chmod(0o700)
    with packaging.build(trainer) as archive, tarfile.open(archive.path) as tar:
        for member in tar.getmembers():
            assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
            assert member.mode == (0o755 if member.name.endswith("task.py") else 0o644)
            assert member.mtime > 315_532_800  # zip files, and so wheels, know no earlier time


def test_the_setup_py_beside_the_folder_is_used(trainer: Path) -> None:
    root = trainer.parent
    _write(
        root,
        {
            "setup.py": "from setuptools import find_packages, setup\n"
            "open('made_by_setup.txt', 'w').close()\n"
            "setup(name='mine', version=open('VERSION').read().strip(), packages=find_packages())\n",
            "VERSION": "1.2\n",
            "MANIFEST.in": "include VERSION\n",
            "README.md": "Words.\n",
            ".venv/pyvenv.cfg": "",
            "mine.egg-info/SOURCES.txt": "gone.py\n",
            "dist/mine-0.1.tar.gz": "old",
        },
    )
    before = _snapshot(root)
    name, _, members = _built(trainer)
    assert name == "mine-1.2.tar.gz"
    assert {"mine-1.2/trainer/task.py", "mine-1.2/trainer/sub/model.py", "mine-1.2/VERSION"} <= set(members)
    assert not [member for member in members if "dist/" in member or ".venv" in member]
    assert _snapshot(root) == before


def test_large_files_beside_a_setup_py_are_not_copied(trainer: Path, own_temp: Path) -> None:
    root = trainer.parent
    with open(root / "data.bin", "wb") as file:
        file.truncate(64 << 20)
    _write(
        root,
        {
            "setup.py": "import os\nassert os.path.islink('data.bin') and os.path.getsize('data.bin') == 64 << 20\n"
            "from setuptools import setup\nsetup(name='mine', version='1', packages=['trainer'])\n"
        },
    )
    assert _built(trainer)[0] == "mine-1.tar.gz"


def test_a_setup_py_that_fails_says_so_in_its_own_words(trainer: Path) -> None:
    _write(trainer.parent, {"setup.py": "raise RuntimeError('no compiler here')\n"})
    with pytest.raises(
        InvalidArgumentError, match=r"(?s)by its setup\.py failed.*RuntimeError: no compiler here"
    ) as caught:
        packaging.build(trainer)
    assert f'File "{trainer.parent}/setup.py"' in str(caught.value)


def test_a_pyproject_is_built_by_what_it_asks_for(trainer: Path) -> None:
    backend = (
        "import io, tarfile\n"
        "def build_sdist(folder, config_settings=None):\n"
        "    with tarfile.open(f'{folder}/mine-3.tar.gz', 'w:gz') as tar:\n"
        "        for name in ('pyproject.toml', 'trainer/__init__.py', 'trainer/task.py'):\n"
        "            tar.add(name, f'mine-3/{name}')\n"
        "        body = b'Metadata-Version: 2.1\\nName: mine\\nVersion: 3\\n'\n"
        "        info = tarfile.TarInfo('mine-3/PKG-INFO')\n"
        "        info.size = len(body)\n"
        "        tar.addfile(info, io.BytesIO(body))\n"
        "    return 'mine-3.tar.gz'\n"
    )
    _write(
        trainer.parent,
        {
            "pyproject.toml": "[project]\nname = 'mine'\nversion = '3'\n"
            "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
            "backend.py": backend,
        },
    )
    name, first, members = _built(trainer)
    assert name == "mine-3.tar.gz"
    assert "mine-3/trainer/task.py" in members
    assert _built(trainer)[1] == first


def test_a_pyproject_that_only_sets_up_tools_is_no_project(trainer: Path) -> None:
    _write(trainer.parent, {"pyproject.toml": "[tool.ruff]\nline-length = 100\n"})
    assert _built(trainer)[0] == "trainer-0.0.0.tar.gz"
    _write(trainer.parent, {"pyproject.toml": "[tool"})
    with pytest.raises(InvalidArgumentError, match="can't be read"):
        packaging.build(trainer)


def test_a_folder_that_is_no_package_is_refused_in_known_words(tmp_path: Path) -> None:
    folder = tmp_path / "trainer"
    folder.mkdir()
    with pytest.raises(InvalidArgumentError) as caught:
        packaging.build(folder)
    assert str(caught.value) == (
        f"[{folder}] is not a valid Python package because it does not contain an `__init__.py` file. "
        f"Please create one and try again."
    )
    with pytest.raises(InvalidArgumentError, match="is not a folder"):
        packaging.build(tmp_path / "absent")


def test_a_name_that_python_cannot_import_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "root" / "my-trainer", {"__init__.py": ""})
    with pytest.raises(InvalidArgumentError, match="can't import a package named"):
        packaging.build(tmp_path / "root" / "my-trainer")


def test_the_folder_may_be_named_in_any_way(trainer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _built(trainer)
    monkeypatch.chdir(trainer)
    for way in (Path("."), Path("../trainer"), Path("../trainer/"), Path("sub/..")):
        assert _built(way) == first


def test_links_are_followed_and_loops_are_not(trainer: Path, tmp_path: Path) -> None:
    _write(tmp_path / "elsewhere", {"shared.py": "Z = 3\n"})
    (trainer / "shared").symlink_to(tmp_path / "elsewhere")
    (trainer / "self").symlink_to(trainer)
    (trainer / "dangling.py").symlink_to(tmp_path / "absent")
    os.mkfifo(trainer / "pipe")
    with packaging.build(trainer) as archive, tarfile.open(archive.path) as tar:
        assert all(member.isreg() for member in tar.getmembers())
        names = tar.getnames()
    assert "trainer-0.0.0/trainer/shared/shared.py" in names
    assert not [name for name in names if "self" in name or "dangling" in name or "pipe" in name]


@pytest.mark.parametrize(
    "limit, words", [("MAX_FILES", "more than 3 files"), ("MAX_PACKAGE_BYTES", "put data in a bucket")]
)
def test_a_package_is_not_for_data(trainer: Path, monkeypatch: pytest.MonkeyPatch, limit: str, words: str) -> None:
    monkeypatch.setattr(packaging, limit, 3)
    with pytest.raises(InvalidArgumentError, match=words):
        packaging.build(trainer)


def test_the_checksum_is_over_all_files_in_order(tmp_path: Path) -> None:
    _write(tmp_path, {"a": "one", "b": "two"})
    assert packaging.digest([tmp_path / "a", tmp_path / "b"]) == sha256(b"onetwo").hexdigest()
    with pytest.raises(InvalidArgumentError, match="can't be read"):
        packaging.digest([tmp_path / "absent"])


@pytest.mark.parametrize(
    "bucket, job_dir, prefix",
    [
        ("gs://b", None, "gs://b/job_1"),
        ("b", "gs://other/dir", "gs://b/job_1"),
        ("gs://b/", None, "gs://b/job_1"),
        (None, "gs://b/some/dir", "gs://b/some/dir/packages"),
        (None, "gs://b/some/dir/", "gs://b/some/dir/packages"),
        (None, "gs://b", "gs://b/packages"),
    ],
)
def test_where_packages_go(tmp_path: Path, bucket: str | None, job_dir: str | None, prefix: str) -> None:
    _write(tmp_path, {"a.tar.gz": "one", "b.whl": "two"})
    files = [tmp_path / "a.tar.gz", tmp_path / "b.whl"]
    names = packaging.upload_names(files, job_id="job_1", staging_bucket=bucket, job_dir=job_dir)
    sum_of_all = sha256(b"onetwo").hexdigest()
    assert names == {files[0]: f"{prefix}/{sum_of_all}/a.tar.gz", files[1]: f"{prefix}/{sum_of_all}/b.whl"}


@pytest.mark.parametrize(
    "bucket, job_dir, words",
    [
        (None, None, "`--staging-bucket` or `--job-dir` flag must be given"),
        ("gs://b/path", None, "must be a bucket alone"),
        ("gs://", None, "must be a bucket alone"),
        (None, "/tmp/job", "must be in a bucket"),
        (None, "gs://", "must be in a bucket"),
    ],
)
def test_where_packages_cannot_go(tmp_path: Path, bucket: str | None, job_dir: str | None, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        packaging.upload_names([], job_id="job_1", staging_bucket=bucket, job_dir=job_dir)


def test_two_packages_of_one_name_are_refused(tmp_path: Path) -> None:
    _write(tmp_path, {"x/a.tar.gz": "one", "y/a.tar.gz": "two"})
    with pytest.raises(InvalidArgumentError, match=r"the same file name \[a\.tar\.gz\]"):
        packaging.upload_names(
            [tmp_path / "x/a.tar.gz", tmp_path / "y/a.tar.gz"], job_id="j", staging_bucket="b", job_dir=None
        )
