"""The samples that come with Trainshed: found in a checkout and in an installed package, and copied for a user."""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

import trainshed
from trainshed.errors import AlreadyExistsError, CannotProceedError, NotFoundError

_PACKAGE = Path(trainshed.__file__).resolve().parent
_PLACES = (_PACKAGE.parents[1] / "samples", _PACKAGE / "samples")  #: in a checkout, in an installed package
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleProject:
    """One of them. `next` is what to type in a copy of it."""

    name: str
    runtime: str
    summary: str
    folder: Path
    data: Path | None = None  #: a folder outside its own that it needs
    next: tuple[str, ...] = ()


def samples_folder() -> Path:
    """Where the samples are. `CannotProceedError` if this installation has none."""
    for place in _PLACES:
        if (place / "samples.toml").is_file():
            return place
    raise CannotProceedError("This installation of Trainshed has no samples. Install the package trainshed again.")


def catalogue(root: Path) -> dict[str, SampleProject]:
    """All samples of a folder, by name, in the order of its table."""
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
    """Copy a sample, with the data it needs in `data`, to a folder. `AlreadyExistsError` if it is not new or empty."""
    check_new(target)
    copy_part(sample, ".", target)


def check_new(target: Path) -> None:
    """`AlreadyExistsError` if something is there: nothing of the user's is ever written over."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise AlreadyExistsError(f"{target} is there and is not a folder. Choose another name.")
    if target.is_dir() and any(target.iterdir()):
        raise AlreadyExistsError(f"The folder {target} is not empty. Choose a new one; nothing was copied.")


def copy_part(sample: SampleProject, part: str, target: Path) -> None:
    """Copy a file or a folder of a sample; all of it, with the data it needs, if `part` is a dot."""
    source = sample.folder / part
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_file():
            shutil.copy2(source, target)
        else:
            shutil.copytree(source, target, ignore=_LEFT_OUT, dirs_exist_ok=True)
        if part == "." and sample.data is not None:
            shutil.copytree(sample.data, target / "data", ignore=_LEFT_OUT, dirs_exist_ok=True)
    except (OSError, shutil.Error) as exc:
        raise CannotProceedError(f"The sample {sample.name} can't be copied to {target}: {exc}.") from exc


def find(root: Path, name: str) -> SampleProject:
    """One sample. `NotFoundError`, with the names there are, if there is none of this name."""
    known = catalogue(root)
    if name not in known:
        raise NotFoundError(f"There is no sample {name!r}. The samples are: {', '.join(known)}.")
    return known[name]
