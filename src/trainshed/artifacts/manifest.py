"""What hosts of a version on other machines need to have of this one: a list of its files and packages, by content.

It is written down when the version is created, beside copies of the packages: hosts are started again for as long as
the version is there, and by then what the packages came from may have been replaced.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson

from trainshed.artifacts import staging
from trainshed.artifacts.staging import SAFE_WRITE_FLAGS, OpenFile, Package, StagedPackage
from trainshed.errors import FailedPreconditionError, NotFoundError

MANIFEST_FILE = "manifest.json"  #: in the folder of the version's hosts
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One file, by its content."""

    name: str  #: with `/` between folders; of a package, where it came from
    sha256: str
    size: int

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "sha256": self.sha256, "size": self.size}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactManifest:
    """All that the hosts of one version need."""

    model: str  #: the name of the folder with its files
    files: tuple[ManifestEntry, ...]
    packages: tuple[ManifestEntry, ...]

    @classmethod
    def gather(cls, folder: Path, model_dir: Path, packages: Sequence[Package]) -> Self:
        """Find out, and write it down in the folder of the hosts. Reads all of the files, which may take a while."""
        made = cls(
            model=model_dir.name,
            files=tuple(_provision(path, path.relative_to(model_dir).as_posix()) for path in _files(model_dir)),
            packages=tuple(_parcel(folder, package) for package in packages),
        )
        made._write(folder)
        return made

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What was written down. `FailedPreconditionError` if that is gone."""
        try:
            note = orjson.loads((folder / MANIFEST_FILE).read_bytes())
            lists = {key: tuple(ManifestEntry(**each) for each in note[key]) for key in ("files", "packages")}
            return cls(model=str(note["model"]), **lists)
        except (OSError, ValueError, LookupError, TypeError) as exc:
            raise FailedPreconditionError(
                f"What the hosts of this version need is not known any more: {folder / MANIFEST_FILE} is missing "
                f"or damaged. Create the version again."
            ) from exc

    def _write(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = folder / f".{MANIFEST_FILE}"
        draft.unlink(missing_ok=True)
        note = {
            "model": self.model,
            "files": [each.as_json() for each in self.files],
            "packages": [each.as_json() for each in self.packages],
        }
        with open(os.open(draft, SAFE_WRITE_FLAGS, 0o600), "wb") as file:
            file.write(orjson.dumps(note))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(folder / MANIFEST_FILE)

    def open(self, folder: Path, models: Path, sha256: str) -> OpenFile:
        """The file or package with this content; the caller closes it. `models` holds the folders of files.

        `NotFoundError` if the version has none.
        """
        missing = NotFoundError(f"This version has no file with the SHA-256 {sha256[:64]!r}.")
        if not _SHA256.fullmatch(sha256):
            raise missing
        if any(each.sha256 == sha256 for each in self.packages):
            return StagedPackage(folder, sha256)
        for each in self.files:
            parts = each.name.split("/")
            if each.sha256 == sha256 and "/" not in self.model and not {"", ".", ".."} & {self.model, *parts}:
                return OpenFile(models.joinpath(self.model, *parts))
        raise missing


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _provision(path: Path, name: str) -> ManifestEntry:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            size += len(piece)
    return ManifestEntry(name=name, sha256=digest.hexdigest(), size=size)


def _parcel(folder: Path, package: Package) -> ManifestEntry:
    kept = staging.stage_package(folder, package)
    return ManifestEntry(name=package.uri, sha256=package.sha256, size=kept.stat().st_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactAccess:
    """How a machine of the cluster gets the files of one version from this server."""

    url: str  #: to which the digest of a file is added
    ca: str
    token: str
