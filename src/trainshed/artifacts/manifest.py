"""The artifact manifest: the files and packages that remote hosts of one version need, by digest.

It is written when the version is created, beside copies of the packages. Hosts are started as long as the version
exists, and by then the sources of the packages may have been replaced.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson

from trainshed.artifacts import staging
from trainshed.artifacts.staging import OpenFile, Package, StagedPackage
from trainshed.errors import FailedPreconditionError, NotFoundError
from trainshed.node.files import write_file

MANIFEST_FILE = "manifest.json"  #: in the folder of the version's hosts
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One artifact, by its digest."""

    name: str  #: with `/` between folders; of a package, its URI
    sha256: str
    size: int

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "sha256": self.sha256, "size": self.size}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactManifest:
    """All artifacts that the hosts of one version need."""

    model: str  #: the name of the folder with its files
    files: tuple[ManifestEntry, ...]
    packages: tuple[ManifestEntry, ...]

    @classmethod
    def gather(cls, folder: Path, model_dir: Path, packages: Sequence[Package]) -> Self:
        """Build the manifest and write it to the hosts' folder. Reads all files, which may take a while."""
        manifest = cls(
            model=model_dir.name,
            files=tuple(_file_entry(path, path.relative_to(model_dir).as_posix()) for path in _files(model_dir)),
            packages=tuple(_package_entry(folder, package) for package in packages),
        )
        manifest._write(folder)
        return manifest

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest. Raises `FailedPreconditionError` if it is missing or damaged."""
        try:
            content = orjson.loads((folder / MANIFEST_FILE).read_bytes())
            lists = {key: tuple(ManifestEntry(**entry) for entry in content[key]) for key in ("files", "packages")}
            return cls(model=str(content["model"]), **lists)
        except (OSError, ValueError, LookupError, TypeError) as exc:
            raise FailedPreconditionError(
                f"What the hosts of this version need is not known any more: {folder / MANIFEST_FILE} is missing "
                f"or damaged. Create the version again."
            ) from exc

    def _write(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = {
            "model": self.model,
            "files": [entry.as_json() for entry in self.files],
            "packages": [entry.as_json() for entry in self.packages],
        }
        write_file(folder / MANIFEST_FILE, orjson.dumps(content), durable=True)

    def open(self, folder: Path, models: Path, sha256: str) -> OpenFile:
        """Open the file or package with this digest; the caller closes it. `models` holds the folders of files.

        Raises `NotFoundError` if the version has none.
        """
        missing = NotFoundError(f"This version has no file with the SHA-256 {sha256[:64]!r}.")
        if not _SHA256.fullmatch(sha256):
            raise missing
        if any(entry.sha256 == sha256 for entry in self.packages):
            return StagedPackage(folder, sha256)
        for entry in self.files:
            parts = entry.name.split("/")
            if entry.sha256 == sha256 and "/" not in self.model and not {"", ".", ".."} & {self.model, *parts}:
                return OpenFile(models.joinpath(self.model, *parts))
        raise missing


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _file_entry(path: Path, name: str) -> ManifestEntry:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return ManifestEntry(name=name, sha256=digest.hexdigest(), size=size)


def _package_entry(folder: Path, package: Package) -> ManifestEntry:
    staged = staging.stage_package(folder, package)
    return ManifestEntry(name=package.uri, sha256=package.sha256, size=staged.stat().st_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactAccess:
    """How a remote node gets the files of one version from this server."""

    url: str  #: prefix of a file's URL, to which its digest is added
    ca: str
    token: str
