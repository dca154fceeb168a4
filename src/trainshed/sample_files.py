"""Where the samples and their data are: in a checkout, or in an installed package."""

from __future__ import annotations

from pathlib import Path

import trainshed
from trainshed.errors import CannotProceedError

_PACKAGE = Path(trainshed.__file__).resolve().parent
_FOLDERS = (_PACKAGE.parents[1] / "samples", _PACKAGE / "samples")  #: in a checkout, in an installed package


def samples_folder() -> Path:
    """Return the folder of the samples. Raises `CannotProceedError` if this installation has none."""
    for folder in _FOLDERS:
        if (folder / "samples.toml").is_file():
            return folder
    raise CannotProceedError("This installation of Trainshed has no samples. Install the package trainshed again.")
