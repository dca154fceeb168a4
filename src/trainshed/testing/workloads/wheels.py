"""Wheels of small packages: uv unpacks one in milliseconds, where a source archive starts setuptools to build it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Collection
from pathlib import Path

VERSION = "0.0.0"


def wheel_name(package: str) -> str:
    return f"{package}-{VERSION}-py3-none-any.whl"


def wheel(folder: Path, *, requires: Collection[str] = ()) -> bytes:
    """Return the wheel of the package whose modules are in `folder` and which has its name."""
    info = f"{folder.name}-{VERSION}.dist-info"
    needs = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    files = {file.relative_to(folder.parent).as_posix(): file.read_bytes() for file in sorted(folder.rglob("*.py"))}
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {folder.name}\nVersion: {VERSION}\n{needs}".encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: trainshed\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD")).encode()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()
