"""Keras in a runtime accepts the archive of MNIST that this server makes.

Keras checks what it downloads. The archive that Google has can't be made again byte for byte, because it holds the
times of four files on its author's machine. The arrays in the server's own are the same, so its digest counts as well.
"""

from __future__ import annotations

import stat
from pathlib import Path

from trainshed.node.files import write_file

MNIST_SHA256 = "1d9c5042b9611cb02c28aa48ed58c30a872637857772353c2bbe20ffd118f295"
#: the digests by which versions of Keras know Google's archive
_GOOGLE_DIGESTS = (
    "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
    "8a61469f7ea1b51cbae51d4f78837e45",
)
#: the modules with `validate_file`, in Keras 3, Keras 2, and TensorFlow's own Keras
_MODULES = (
    "keras/src/utils/file_utils.py",
    "keras/src/utils/data_utils.py",
    "tensorflow/python/keras/utils/data_utils.py",
    "tensorflow_core/python/keras/utils/data_utils.py",
)
_MARK = "# Added by Trainshed"
_ADDITION = f"""

{_MARK}: the server's own archive of MNIST holds the same arrays as Google's.
_validate_download = validate_file


def validate_file(fpath, file_hash, *args, **kwargs):
    if _validate_download(fpath, file_hash, *args, **kwargs):
        return True
    return file_hash in {_GOOGLE_DIGESTS!r} and _validate_download(fpath, {MNIST_SHA256!r}, "sha256")
"""


def accept_mirrored_data(site: Path) -> None:
    """Add to the Keras below `site` that it accepts the server's archive. Idempotent."""
    for path in (site / name for name in _MODULES):
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        if "validate_file(" in text and _MARK not in text:
            write_file(path, (text + _ADDITION).encode(), stat.S_IMODE(path.stat().st_mode))
