"""The samples that come with Trainshed, in a checkout or an installed package, and copies of them."""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

from trainshed.errors import AlreadyExistsError, CannotProceedError, NotFoundError

_IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleProject:
    """One sample. `next` are the commands to type in a copy of it."""

    name: str
    runtime: str
    summary: str
    folder: Path
    data: Path | None = None  #: a folder outside its own that it needs
    next: tuple[str, ...] = ()


def catalogue(root: Path) -> dict[str, SampleProject]:
    """Return all samples of a folder, by name, in the order of its table."""
    table = tomllib.loads((root / "samples.toml").read_text(encoding="utf-8"))
    return {
        name: SampleProject(
            name=name,
            runtime=row["runtime"],
            summary=row["summary"],
            folder=root / name,
            data=root / "data" / row["data"] if "data" in row else None,
            next=tuple(row.get("next", ())),
        )
        for name, row in table.items()
    }


def copy(sample: SampleProject, target: Path) -> None:
    """Copy a sample, with its data in `data`, to a folder. Raises `AlreadyExistsError` if the folder is not empty."""
    check_new(target)
    copy_part(sample, ".", target)


def check_new(target: Path) -> None:
    """Raises `AlreadyExistsError` if the target holds anything: a user's files are never overwritten."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise AlreadyExistsError(f"{target} is there and is not a folder. Choose another name.")
    if target.is_dir() and any(target.iterdir()):
        raise AlreadyExistsError(f"The folder {target} is not empty. Choose a new one; nothing was copied.")


def copy_part(sample: SampleProject, part: str, target: Path) -> None:
    """Copy a file or a folder of a sample. A dot is the whole sample with its data."""
    source = sample.folder / part
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_file():
            shutil.copy2(source, target)
        else:
            shutil.copytree(source, target, ignore=_IGNORED, dirs_exist_ok=True)
        if part == "." and sample.data is not None:
            shutil.copytree(sample.data, target / "data", ignore=_IGNORED, dirs_exist_ok=True)
    except (OSError, shutil.Error) as exc:
        raise CannotProceedError(f"The sample {sample.name} can't be copied to {target}: {exc}.") from exc


def find(root: Path, name: str) -> SampleProject:
    """Return one sample. Raises `NotFoundError`, with the existing names, if there is none of this name."""
    samples = catalogue(root)
    if name not in samples:
        raise NotFoundError(f"There is no sample {name!r}. The samples are: {', '.join(samples)}.")
    return samples[name]
