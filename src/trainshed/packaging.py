"""Builds the archive of a trainer's package, and names the objects that it is uploaded to.

For the command line, on the user's machine. Never writes to the user's folder. The same content gives the same bytes,
so that a second submission reuses the upload and the installation.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from trainshed.domain.uris import bucket_of, is_uri
from trainshed.errors import InvalidArgumentError

if TYPE_CHECKING:
    import tarfile
    from tempfile import TemporaryDirectory

MAX_FILES = 50_000
MAX_PACKAGE_BYTES = 500 << 20
_MAX_COPY_BYTES = 16 << 20  #: larger files are linked into the copy that a setup.py runs in
_BUILD_TIMEOUT_S = 600.0
_MTIME = 315_619_200  #: 1980-01-02: zip files, such as wheels, have no earlier times
_EXCLUDED_FOLDERS = ("__pycache__", "node_modules")
_COMPILED_SUFFIXES = (".pyc", ".pyo")

_SETUP = """from setuptools import find_namespace_packages, setup

setup(
    name={name!r},
    version="0.0.0",
    packages=find_namespace_packages(include=[{name!r}, {name!r} + ".*"]),
    include_package_data=True,
)
"""
_MANIFEST = "recursive-include {name} *\nglobal-exclude *.py[co]\n"
_PKG_INFO = "Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.0\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A built package. `close`, or the end of the `with` block, removes its file."""

    path: Path
    folder: TemporaryDirectory[str]

    def close(self) -> None:
        self.folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def build(package_path: Path) -> Archive:
    """Build the source archive of the package folder that `--package-path` names.

    The `setup.py` in the parent folder, else its `pyproject.toml`, defines the content. Without either, it is the
    package folder with all its files, as NAME-0.0.0.tar.gz. Raises `InvalidArgumentError` if there is no package or
    the build fails.
    """
    import tempfile

    package = _find_package(package_path)
    folder = tempfile.TemporaryDirectory(prefix="trainshed-package-")
    try:
        out = Path(folder.name, "archive")
        out.mkdir()
        return Archive(path=_build(package, Path(folder.name), out), folder=folder)
    except BaseException:
        folder.cleanup()
        raise


def digest(paths: Sequence[Path]) -> str:
    """The SHA-256 of the concatenated files, in hexadecimal.

    Raises `InvalidArgumentError` if a file can't be read.
    """
    import hashlib

    sha256 = hashlib.sha256()
    for path in paths:
        try:
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    sha256.update(block)
        except OSError as exc:
            raise InvalidArgumentError(f"The package [{path}] can't be read: {exc.strerror}.") from exc
    return sha256.hexdigest()


def upload_names(
    files: Sequence[Path], *, job_id: str, staging_bucket: str | None, job_dir: str | None
) -> dict[Path, str]:
    """The URI to upload each file to: below the job's id in the staging bucket, else below the job directory.

    Each URI contains one digest over all files. Raises `InvalidArgumentError` without a bucket and a job directory, or
    if two files have the same name.
    """
    names = [path.name for path in files]
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidArgumentError(
            f"Two packages have the same file name [{duplicates[0]}], and would be uploaded one over the other. "
            f"Rename one."
        )
    prefix = f"{_staging_uri(job_id, staging_bucket, job_dir)}/{digest(files)}"
    return {path: f"{prefix}/{path.name}" for path in files}


def _staging_uri(job_id: str, staging_bucket: str | None, job_dir: str | None) -> str:
    if staging_bucket:
        bucket = bucket_of(staging_bucket)
        if not bucket or "/" in bucket:
            raise InvalidArgumentError(
                f"The staging bucket [{staging_bucket}] must be a bucket alone, such as gs://my-bucket."
            )
        return f"gs://{bucket}/{job_id}"
    if not job_dir:
        raise InvalidArgumentError(
            "If local packages are provided, the `--staging-bucket` or `--job-dir` flag must be given."
        )
    if not is_uri(job_dir) or not bucket_of(job_dir):
        raise InvalidArgumentError(f"The job directory [{job_dir}] must be in a bucket, such as gs://my-bucket/my-job.")
    return f"{job_dir.rstrip('/')}/packages"


def _find_package(package_path: Path) -> Path:
    """The absolute path of a package folder. Its own name is not resolved if it is a link."""
    folder = package_path.expanduser()
    if not folder.is_dir():
        raise InvalidArgumentError(
            f"The package path [{package_path}] is not a folder. Name the folder that holds the trainer's code."
        )
    has_name = folder.name and folder.name != ".."
    package = folder.parent.resolve() / folder.name if has_name else folder.resolve()
    if not (package / "__init__.py").is_file():
        raise InvalidArgumentError(
            f"[{package}] is not a valid Python package because it does not contain an `__init__.py` file. "
            f"Please create one and try again."
        )
    return package


def _build(package: Path, scratch: Path, out: Path) -> Path:
    root = package.parent
    if (root / "setup.py").is_file():
        return _repack(_run_setup(root, scratch), root, out)
    if _is_project(root / "pyproject.toml"):
        return _repack(_run_uv(root, scratch), root, out)
    return _write_archive(package, out)


def _is_project(pyproject: Path) -> bool:
    """Whether it defines a build. Many only configure tools."""
    import tomllib

    try:
        table = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as exc:
        raise InvalidArgumentError(f"[{pyproject}] can't be read: {exc}.") from exc
    return "project" in table or "build-system" in table


def _write_archive(package: Path, out: Path) -> Path:
    """Write the archive of a package without a build file."""
    name = package.name
    if not name.isidentifier():
        raise InvalidArgumentError(
            f"Python can't import a package named [{name}]. Name the folder with letters, digits and _ only."
        )
    top = f"{name}-0.0.0"
    generated = {"PKG-INFO": _PKG_INFO, "setup.py": _SETUP, "MANIFEST.in": _MANIFEST}
    members: dict[str, bytes | Path] = {
        f"{top}/{file}": text.format(name=name).encode() for file, text in generated.items()
    }
    size = 0
    for path in _files(package):
        members[f"{top}/{name}/{path.relative_to(package).as_posix()}"] = path
        size += path.stat().st_size
        _check_limits(package, count=len(members), size=size)
    target = out / f"{top}.tar.gz"
    with _open_archive(target) as archive:
        for member in sorted(members):
            content = members[member]
            if isinstance(content, Path):
                _add_file(archive, member, content)
            else:
                _add(archive, member, _memory(content), size=len(content))
    return target


def _files(folder: Path) -> Iterator[Path]:
    """The regular files of a package, except hidden and compiled ones. Follows links, without loops."""
    visited: set[tuple[int, int]] = set()
    for at, folders, names in os.walk(folder, followlinks=True):
        status = Path(at).stat()
        if (status.st_dev, status.st_ino) in visited:
            folders.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        folders[:] = [name for name in folders if not _is_excluded(Path(at, name))]
        for name in names:
            if not name.startswith(".") and not name.endswith(_COMPILED_SUFFIXES) and Path(at, name).is_file():
                yield Path(at, name)


def _is_excluded(folder: Path) -> bool:
    name = folder.name
    return (
        name.startswith(".")
        or name in _EXCLUDED_FOLDERS
        or name.endswith(".egg-info")  # may be outdated
        or (folder / "pyvenv.cfg").exists()
    )


def _check_limits(root: Path, *, count: int, size: int) -> None:
    if count > MAX_FILES:
        raise InvalidArgumentError(
            f"[{root}] holds more than {MAX_FILES:,} files. Move the trainer to a folder of its own, without its data."
        )
    if size > MAX_PACKAGE_BYTES:
        raise InvalidArgumentError(
            f"The package in [{root}] is over {MAX_PACKAGE_BYTES >> 20} MB. A package is for code: put data in a "
            f"bucket, with `trainshed buckets cp`, and let the trainer read it from there."
        )


def _run_setup(root: Path, scratch: Path) -> Path:
    import sys

    copy = _copy(root, scratch / "source")
    dist = scratch / "made"
    _run(
        [sys.executable, "setup.py", "sdist", "--formats=gztar", f"--dist-dir={dist}"],
        cwd=copy,
        build_file="setup.py",
        root=root,
    )
    return _only_archive(dist, root)


def _run_uv(root: Path, scratch: Path) -> Path:
    import sys

    from trainshed.runtimes.uv import find_uv, uv_command

    copy = _copy(root, scratch / "source")
    dist = scratch / "made"
    command = uv_command(find_uv(), "build", "--sdist", "--python", sys.executable, "--out-dir", dist, copy)
    _run(command, cwd=copy, build_file="pyproject.toml", root=root)
    return _only_archive(dist, root)


def _run(command: list[str], *, cwd: Path, build_file: str, root: Path) -> None:
    import subprocess

    try:
        result = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_BUILD_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise InvalidArgumentError(
            f"Packaging [{root}] by its {build_file} took over {_BUILD_TIMEOUT_S:.0f} s and was stopped."
        ) from None
    if result.returncode != 0:
        lines = [line for line in result.stdout.splitlines() if line.strip()]
        tail = "\n".join(lines[-10:]).replace(str(cwd), str(root))
        raise InvalidArgumentError(
            f"Packaging [{root}] by its {build_file} failed. Mend it and try again. Its last lines:\n{tail}"
        )


def _only_archive(dist: Path, root: Path) -> Path:
    archives = sorted(dist.glob("*.tar.gz"))
    if len(archives) != 1:
        raise InvalidArgumentError(
            f"Packaging [{root}] gave {len(archives)} archives instead of one. Let it build one package."
        )
    return archives[0]


def _copy(root: Path, copy: Path) -> Path:
    """Copy the folder to run its setup.py in, which leaves files behind."""
    import shutil

    count = 0
    for at, folders, names in os.walk(root):
        here = copy / Path(at).relative_to(root)
        here.mkdir()
        included = [
            name for name in folders if not _is_excluded(Path(at, name)) and not _is_build_output(root, Path(at, name))
        ]
        folders[:] = [name for name in included if not Path(at, name).is_symlink()]
        for name in set(included) - set(folders):
            (here / name).symlink_to(Path(at, name).resolve())
        for source in (Path(at, name) for name in names):
            if not source.is_file() or source.name.endswith(_COMPILED_SUFFIXES):
                continue
            count += 1
            _check_limits(root, count=count, size=0)
            if source.stat().st_size > _MAX_COPY_BYTES:
                (here / source.name).symlink_to(source.resolve())
            else:
                shutil.copyfile(source, here / source.name)
                (here / source.name).chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)
    return copy


def _is_build_output(root: Path, folder: Path) -> bool:
    """Whether the folder is `build` or `dist` of an earlier build, not a package."""
    return folder.parent == root and folder.name in ("build", "dist") and not (folder / "__init__.py").exists()


def _repack(built: Path, root: Path, out: Path) -> Path:
    """Rewrite an archive without times and owners, so that equal content gives equal bytes."""
    import tarfile

    target = out / built.name
    with tarfile.open(built) as source, _open_archive(target) as archive:
        size = 0
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            if member.isdir():
                continue
            content = source.extractfile(member)
            if content is None:
                raise InvalidArgumentError(
                    f"The package holds [{member.name}], which is neither a file nor a folder. Leave it out."
                )
            length = content.seek(0, os.SEEK_END)  # of a link: of its target
            content.seek(0)
            size += length
            _check_limits(root, count=0, size=size)
            _add(archive, member.name, content, size=length, executable=bool(member.mode & 0o100))
    return target


@contextlib.contextmanager
def _open_archive(target: Path) -> Iterator[tarfile.TarFile]:
    """A tar.gz to write, whose bytes depend only on its members."""
    import gzip
    import tarfile

    with (
        open(target, "wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        yield archive


def _add_file(archive: tarfile.TarFile, name: str, path: Path) -> None:
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            _add(archive, name, file, size=status.st_size, executable=bool(status.st_mode & 0o100))
    except OSError as exc:
        raise InvalidArgumentError(f"[{path}] can't be packaged: {exc.strerror or exc}.") from exc


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes], *, size: int, executable: bool = False) -> None:
    import tarfile

    info = tarfile.TarInfo(name)
    info.size = size
    info.mtime = _MTIME
    info.mode = 0o755 if executable else 0o644
    archive.addfile(info, content)


def _memory(content: bytes) -> IO[bytes]:
    import io

    return io.BytesIO(content)
