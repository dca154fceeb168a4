"""The archive `mnist.npz` that Keras reads, made of the MNIST files of the samples.

Its bytes are the same on every machine: nothing is compressed, and no time is in it. They are not those of the archive
that Google has, which has the times of four files on its author's machine in it, but the arrays are.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

#: the array -> the file with its bytes, the bytes before them, and its shape
_ARRAYS = {
    "x_test": ("t10k-images-idx3-ubyte.gz", 16, (10_000, 28, 28)),
    "x_train": ("train-images-idx3-ubyte.gz", 16, (60_000, 28, 28)),
    "y_train": ("train-labels-idx1-ubyte.gz", 8, (60_000,)),
    "y_test": ("t10k-labels-idx1-ubyte.gz", 8, (10_000,)),
}
_EPOCH = (1980, 1, 1, 0, 0, 0)
_ALIGNMENT = 64  #: of the data in an .npy file


def mnist_archive(data: Path) -> bytes:
    """Return the archive, made of the folder with the samples' files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, (file, skipped, shape) in _ARRAYS.items():
            content = gzip.decompress((data / file).read_bytes())[skipped:]
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _EPOCH), _npy(shape, content))
    return out.getvalue()


def _npy(shape: tuple[int, ...], content: bytes) -> bytes:
    """Return an array of unsigned bytes in NumPy's file format, version 1.0."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".encode()
    magic = b"\x93NUMPY\x01\x00"
    length = -(-(len(magic) + 2 + len(header) + 1) // _ALIGNMENT) * _ALIGNMENT - len(magic) - 2
    return magic + length.to_bytes(2, "little") + header.ljust(length - 1) + b"\n" + content
