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

#: the types of files that are served; any other file in the folder is not
TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
_COMPRESSED_TYPES = frozenset({".png", ".ico", ".woff2"})  #: gzip would gain nothing
_URL_PREFIX = b'"/console/'  #: the prefix of the other files' URLs in the page


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file as it is sent."""

    content_type: str
    body: bytes
    gzipped: bytes | None
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """All files, by their path below the folder.

    The page has the version in the URLs of the other files. A browser caches them forever, and never mixes versions.
    """

    version: str
    assets: Mapping[str, Asset]

    def find(self, path: str) -> tuple[Asset | None, bool]:
        """Return the file at a path, with or without the version in front, and whether the version was there."""
        version, _, rest = path.partition("/")
        versioned = version == self.version
        return self.assets.get(rest if versioned else path), versioned


@cache
def console(folder: Path = FOLDER) -> Console:
    """Return the files of a folder. Reads them at the first call."""
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in TYPES and path.is_file()
    }
    digest = hashlib.sha256()
    for name, body in files.items():
        digest.update(b"%b\0%d\0%b" % (name.encode(), len(body), body))
    version = digest.hexdigest()[:12]
    if PAGE in files:
        files[PAGE] = files[PAGE].replace(_URL_PREFIX, _URL_PREFIX + version.encode() + b"/")
    return Console(version=version, assets={name: _asset(Path(name).suffix, body) for name, body in files.items()})


def _asset(suffix: str, body: bytes) -> Asset:
    return Asset(
        content_type=TYPES[suffix],
        body=body,
        gzipped=None if suffix in _COMPRESSED_TYPES else gzip.compress(body, 9, mtime=0),
        etag=f'"{hashlib.sha256(body).hexdigest()[:20]}"',
    )
