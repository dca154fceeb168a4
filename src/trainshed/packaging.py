"""From a trainer's folder to the archive that a job is made of, and to the names it is uploaded under.

Used by the command line, on the user's own machine: the user's folder is never written to, and the same content gives
the same bytes, so that submitting it again finds it uploaded and installed already.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from trainshed.errors import InvalidArgumentError

if TYPE_CHECKING:
    import tarfile
    from tempfile import TemporaryDirectory

MAX_FILES = 50_000
MAX_BYTES = 500 << 20
_LINK_FROM = 16 << 20  #: larger files beside a setup.py are linked into the copy it runs in, not copied
_BUILD_S = 600.0
_MTIME = 315_619_200  #: 1980-01-02: wheels are zip files, and those know no time before 1980
_LEFT_OUT = ("__pycache__", "node_modules")
_COMPILED = (".pyc", ".pyo")

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
    """A built package. Its file is gone once `close` is called or the `with` block ends."""

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
    """The source archive of the package in a folder, as `--package-path` means it.

    The folder beside it decides: its `setup.py`, else its `pyproject.toml`, says what the archive holds; where there is
    neither, it holds the package's folder with all its files, as NAME-0.0.0.tar.gz. `InvalidArgumentError` if there
    is no package or its setup.py fails.
    """
    import tempfile

    package = _checked(package_path)
    folder = tempfile.TemporaryDirectory(prefix="trainshed-package-")
    try:
        out = Path(folder.name, "archive")
        out.mkdir()
        return Archive(path=_built(package, Path(folder.name), out), folder=folder)
    except BaseException:
        folder.cleanup()
        raise


def digest(paths: Sequence[Path]) -> str:
    """The SHA-256 of the files' contents, one after the other, in hexadecimal.

    `InvalidArgumentError` if one can't be read.
    """
    import hashlib

    total = hashlib.sha256()
    for path in paths:
        try:
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    total.update(block)
        except OSError as exc:
            raise InvalidArgumentError(f"The package [{path}] can't be read: {exc.strerror}.") from exc
    return total.hexdigest()


def upload_names(
    files: Sequence[Path], *, job_id: str, staging_bucket: str | None, job_dir: str | None
) -> dict[Path, str]:
    """The `gs://` name of each file: below the job's id in the staging bucket, else below the job's folder.

    One checksum over all files is part of each name. `InvalidArgumentError` if neither place is given, or two files
    have one name.
    """
    names = [path.name for path in files]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidArgumentError(
            f"Two packages have the same file name [{twice[0]}], and would be uploaded one over the other. Rename one."
        )
    prefix = f"{_staging(job_id, staging_bucket, job_dir)}/{digest(files)}"
    return {path: f"{prefix}/{path.name}" for path in files}


def _staging(job_id: str, staging_bucket: str | None, job_dir: str | None) -> str:
    if staging_bucket:
        bucket = staging_bucket.removeprefix("gs://").rstrip("/")
        if not bucket or "/" in bucket:
            raise InvalidArgumentError(
                f"The staging bucket [{staging_bucket}] must be a bucket alone, such as gs://my-bucket."
            )
        return f"gs://{bucket}/{job_id}"
    if not job_dir:
        raise InvalidArgumentError(
            "If local packages are provided, the `--staging-bucket` or `--job-dir` flag must be given."
        )
    if not job_dir.removeprefix("gs://").strip("/") or not job_dir.startswith("gs://"):
        raise InvalidArgumentError(f"The job directory [{job_dir}] must be in a bucket, such as gs://my-bucket/my-job.")
    return f"{job_dir.rstrip('/')}/packages"


def _checked(package_path: Path) -> Path:
    """The folder, absolute and under its own name, which must be a package."""
    given = package_path.expanduser()
    if not given.is_dir():
        raise InvalidArgumentError(
            f"The package path [{package_path}] is not a folder. Name the folder that holds the trainer's code."
        )
    named = given.name and given.name != ".."
    package = given.parent.resolve() / given.name if named else given.resolve()
    if not (package / "__init__.py").is_file():
        raise InvalidArgumentError(
            f"[{package}] is not a valid Python package because it does not contain an `__init__.py` file. "
            f"Please create one and try again."
        )
    return package


def _built(package: Path, scratch: Path, out: Path) -> Path:
    root = package.parent
    if (root / "setup.py").is_file():
        return _repacked(_run_setup(root, scratch), root, out)
    if _is_project(root / "pyproject.toml"):
        return _repacked(_run_uv(root, scratch), root, out)
    return _written(package, out)


def _is_project(pyproject: Path) -> bool:
    """Whether it says how to build something; many only configure tools."""
    import tomllib

    try:
        table = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as exc:
        raise InvalidArgumentError(f"[{pyproject}] can't be read: {exc}.") from exc
    return "project" in table or "build-system" in table


def _written(package: Path, out: Path) -> Path:
    """The archive of a bare folder. No setup.py is run for it."""
    name = package.name
    if not name.isidentifier():
        raise InvalidArgumentError(
            f"Python can't import a package named [{name}]. Name the folder with letters, digits and _ only."
        )
    top = f"{name}-0.0.0"
    made = {"PKG-INFO": _PKG_INFO, "setup.py": _SETUP, "MANIFEST.in": _MANIFEST}
    members: dict[str, bytes | Path] = {f"{top}/{file}": text.format(name=name).encode() for file, text in made.items()}
    sizes = 0
    for path in _files(package):
        members[f"{top}/{name}/{path.relative_to(package).as_posix()}"] = path
        sizes += path.stat().st_size
        _check_limits(package, count=len(members), size=sizes)
    target = out / f"{top}.tar.gz"
    with _deterministic(target) as archive:
        for member in sorted(members):
            content = members[member]
            if isinstance(content, Path):
                _add_file(archive, member, content)
            else:
                _add(archive, member, _memory(content), size=len(content))
    return target


def _files(folder: Path) -> Iterator[Path]:
    """The regular files that belong to a package: nothing hidden, nothing compiled. Links are followed, loops not."""
    seen: set[tuple[int, int]] = set()
    for at, folders, names in os.walk(folder, followlinks=True):
        status = Path(at).stat()
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = [name for name in folders if not _skipped(Path(at, name))]
        for name in names:
            if not name.startswith(".") and not name.endswith(_COMPILED) and Path(at, name).is_file():
                yield Path(at, name)


def _skipped(folder: Path) -> bool:
    name = folder.name
    return (
        name.startswith(".")
        or name in _LEFT_OUT
        or name.endswith(".egg-info")  # what it lists may be gone by now
        or (folder / "pyvenv.cfg").exists()
    )


def _check_limits(root: Path, *, count: int, size: int) -> None:
    if count > MAX_FILES:
        raise InvalidArgumentError(
            f"[{root}] holds more than {MAX_FILES:,} files. Move the trainer to a folder of its own, without its data."
        )
    if size > MAX_BYTES:
        raise InvalidArgumentError(
            f"The package in [{root}] is over {MAX_BYTES >> 20} MB. A package is for code: put data in a bucket, with "
            f"`trainshed buckets cp`, and let the trainer read it from there."
        )


def _run_setup(root: Path, scratch: Path) -> Path:
    import sys

    copy = _copied(root, scratch / "source")
    made = scratch / "made"
    _run(
        [sys.executable, "setup.py", "sdist", "--formats=gztar", f"--dist-dir={made}"],
        cwd=copy,
        what="setup.py",
        root=root,
    )
    return _only_archive(made, root)


def _run_uv(root: Path, scratch: Path) -> Path:
    import sys

    from trainshed.runtimes.uv import find_uv, uv_command

    copy = _copied(root, scratch / "source")
    made = scratch / "made"
    command = uv_command(find_uv(), "build", "--sdist", "--python", sys.executable, "--out-dir", made, copy)
    _run(command, cwd=copy, what="pyproject.toml", root=root)
    return _only_archive(made, root)


def _run(command: list[str], *, cwd: Path, what: str, root: Path) -> None:
    import subprocess

    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_BUILD_S,
        )
    except subprocess.TimeoutExpired:
        raise InvalidArgumentError(
            f"Packaging [{root}] by its {what} took over {_BUILD_S:.0f} s and was stopped."
        ) from None
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        words = "\n".join(lines[-10:]).replace(str(cwd), str(root))
        raise InvalidArgumentError(
            f"Packaging [{root}] by its {what} failed. Mend it and try again. Its last lines:\n{words}"
        )


def _only_archive(made: Path, root: Path) -> Path:
    found = sorted(made.glob("*.tar.gz"))
    if len(found) != 1:
        raise InvalidArgumentError(
            f"Packaging [{root}] gave {len(found)} archives instead of one. Let it build one package."
        )
    return found[0]


def _copied(root: Path, copy: Path) -> Path:
    """A copy of the folder to run its setup.py in, since that leaves files behind."""
    import shutil

    count = 0
    for at, folders, names in os.walk(root):
        here = copy / Path(at).relative_to(root)
        here.mkdir()
        kept = [name for name in folders if not _skipped(Path(at, name)) and not _build_output(root, Path(at, name))]
        folders[:] = [name for name in kept if not Path(at, name).is_symlink()]
        for name in set(kept) - set(folders):
            (here / name).symlink_to(Path(at, name).resolve())
        for source in (Path(at, name) for name in names):
            if not source.is_file() or source.name.endswith(_COMPILED):
                continue
            count += 1
            _check_limits(root, count=count, size=0)
            if source.stat().st_size > _LINK_FROM:
                (here / source.name).symlink_to(source.resolve())
            else:
                shutil.copyfile(source, here / source.name)
                (here / source.name).chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)
    return copy


def _build_output(root: Path, folder: Path) -> bool:
    """`build` and `dist` at the top hold what earlier builds made, unless they are packages."""
    return folder.parent == root and folder.name in ("build", "dist") and not (folder / "__init__.py").exists()


def _repacked(made: Path, root: Path, out: Path) -> Path:
    """The same files under the same names, without what differs from one build to the next."""
    import tarfile

    target = out / made.name
    with tarfile.open(made) as source, _deterministic(target) as archive:
        size = 0
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            if member.isdir():
                continue
            content = source.extractfile(member)
            if content is None:
                raise InvalidArgumentError(
                    f"The package holds [{member.name}], which is neither a file nor a folder. Leave it out."
                )
            length = content.seek(0, os.SEEK_END)  # of a link, the file it points to
            content.seek(0)
            size += length
            _check_limits(root, count=0, size=size)
            _add(archive, member.name, content, size=length, executable=bool(member.mode & 0o100))
    return target


@contextlib.contextmanager
def _deterministic(target: Path) -> Iterator[tarfile.TarFile]:
    """A tar.gz to write whose bytes depend on what is added alone."""
    import gzip
    import tarfile

    with (
        open(target, "wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
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
