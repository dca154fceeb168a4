"""The console's files: one page, its scripts and styles, read once and ready to be sent."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "assets"
PAGE = "index.html"

#: what a file may be; anything else in the folder is not served
TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
_PACKED = frozenset({".png", ".ico", ".woff2"})  #: gzip would gain nothing
_HERE = b'"/console/'  #: how the page names the others


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file as it goes over the wire."""

    content_type: str
    body: bytes
    gzipped: bytes | None
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """All files, by their path below the folder. The page names the others with the version in their addresses, so a
    browser keeps them for good, and never has files of two versions side by side.
    """

    version: str
    assets: Mapping[str, Asset]

    def find(self, path: str) -> tuple[Asset | None, bool]:
        """The file of a path, with or without the version in front, and whether it had that in front."""
        version, _, rest = path.partition("/")
        versioned = version == self.version
        return self.assets.get(rest if versioned else path), versioned


@cache
def console(folder: Path = FOLDER) -> Console:
    """The files of a folder; read at the first call."""
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in TYPES and path.is_file()
    }
    digest = hashlib.sha256()
    for name, body in found.items():
        digest.update(b"%b\0%d\0%b" % (name.encode(), len(body), body))
    version = digest.hexdigest()[:12]
    if PAGE in found:
        found[PAGE] = found[PAGE].replace(_HERE, _HERE + version.encode() + b"/")
    return Console(version=version, assets={name: _asset(Path(name).suffix, body) for name, body in found.items()})


def _asset(suffix: str, body: bytes) -> Asset:
    return Asset(
        content_type=TYPES[suffix],
        body=body,
        gzipped=None if suffix in _PACKED else gzip.compress(body, 9, mtime=0),
        etag=f'"{hashlib.sha256(body).hexdigest()[:20]}"',
    )
