"""Buckets: files in and out, and open as if they were here."""

from __future__ import annotations

import io
import mimetypes
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from trainshed.client.context import ClientContext
from trainshed.client.copy_plan import plan_copy, run_transfer
from trainshed.client.parallel import in_parallel
from trainshed.client.transport import segment
from trainshed.client.urls import Url
from trainshed.errors import InvalidArgumentError

_IN_MEMORY = 16 << 20  #: larger objects are read by way of a file

Mode = Literal["r", "rb", "w", "wb"]


class Buckets:
    """The buckets of a project: `connect().buckets`. Names of objects are written gs://BUCKET/NAME."""

    def __init__(self, here: ClientContext) -> None:
        self._here = here

    def create(self, name: str, *, exist_ok: bool = False) -> Bucket:
        """A new bucket. `AlreadyExistsError` if the name is taken, unless `exist_ok` and it is this project's."""
        name = name.removeprefix("gs://").rstrip("/")
        if not (exist_ok and any(found.name == name for found in self.list())):
            self._here.storage.create_bucket(self._here.project, {"name": name})
        return Bucket(self._here, name)

    def get(self, name: str) -> Bucket:
        """A bucket that is there. `NotFoundError` if there is none of this name."""
        name = name.removeprefix("gs://").rstrip("/")
        self._here.storage.bucket(name)
        return Bucket(self._here, name)

    def list(self) -> list[Bucket]:
        """All buckets of the project, by name."""
        return [Bucket(self._here, found["name"]) for found in self._here.storage.buckets(self._here.project)]

    def upload(self, source: str | Path, to: str) -> str:
        """Copy a file or a folder with all that is in it to gs://BUCKET/NAME, by the rules of `cp -r`. Returns `to`."""
        self._copy([str(Path(source).expanduser())], str(Url.cloud(to)))
        return to

    def download(self, source: str, to: str | Path) -> Path:
        """Copy gs://BUCKET/NAME, or a folder of objects, to this machine, by the rules of `cp -r`. Returns `to`."""
        path = Path(to).expanduser()
        self._copy([str(Url.cloud(source))], str(path) + ("/" if path.is_dir() else ""))
        return path

    def open(self, uri: str, mode: Mode = "r") -> IO[Any]:
        """An object as a file: `r` and `w` for text in UTF-8, `rb` and `wb` for bytes.

        What is written becomes the object when the file is closed, whole; a `with` block that fails writes nothing.
        """
        url = Url.cloud(uri)
        if not url.bucket or not url.name or mode not in ("r", "rb", "w", "wb"):
            raise InvalidArgumentError(
                f"Opening needs gs://BUCKET/NAME and one of the modes r, rb, w, wb; not {uri!r}, {mode!r}."
            )
        if mode.startswith("w"):
            writer = _Writer(self._here, url)
            return writer if mode == "wb" else _TextWriter(writer)
        raw = self._read(url)
        return raw if mode == "rb" else io.TextIOWrapper(raw, encoding="utf-8")

    def _read(self, url: Url) -> Any:
        path = f"/storage/v1/b/{segment(url.bucket or '')}/o/{segment(url.name)}"
        found = self._here.client.call("GET", path)
        file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  it is handed to the caller
        self._here.storage.download(found, file)  # type: ignore[arg-type]  # it has `write`
        file.seek(0)
        return file

    def _copy(self, sources: Sequence[str], to: str) -> None:
        storage = self._here.storage
        transfers = plan_copy(storage, self._here.project, sources, to, recursive=True)
        in_parallel(lambda each: run_transfer(storage, each, progress=lambda count: None), transfers)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One object, as it was when it was asked for."""

    uri: str
    size: int
    updated: str  #: RFC 3339


class Bucket:
    """One bucket. It holds a name only: each question goes to the server."""

    def __init__(self, here: ClientContext, name: str) -> None:
        self._here = here
        self.name = name

    @property
    def uri(self) -> str:
        """gs://NAME"""
        return f"gs://{self.name}"

    def folders(self, prefix: str = "") -> list[str]:
        """The gs:// names of the folders right below `prefix`, by name: where exports are, for instance."""
        start = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
        found = self._here.storage.list(self.name, prefix=start, delimiter="/").prefixes
        return [f"{self.uri}/{name}" for name in found]

    def list(self, prefix: str = "") -> list[StoredObject]:
        """The objects whose names start with `prefix`, by name."""
        return [
            StoredObject(uri=f"{self.uri}/{found['name']}", size=int(found["size"]), updated=found["updated"])
            for found in self._here.storage.list(self.name, prefix=prefix).objects
        ]

    def upload(self, source: str | Path, to: str = "") -> str:
        """Copy a file or folder below `to`. Returns the gs:// name of that place."""
        return Buckets(self._here).upload(source, f"{self.uri}/{to}")

    def download(self, name: str, to: str | Path) -> Path:
        """Copy an object or a folder of objects to this machine."""
        return Buckets(self._here).download(f"{self.uri}/{name}", to)

    def open(self, name: str, mode: Mode = "r") -> IO[Any]:
        """An object as a file, as `Buckets.open` has it."""
        return Buckets(self._here).open(f"{self.uri}/{name}", mode)

    def __repr__(self) -> str:
        return f"<Bucket {self.uri}>"


class _Writer(io.BytesIO):
    """Bytes that become an object when they are closed."""

    def __init__(self, here: ClientContext, url: Url) -> None:
        super().__init__()
        self._here = here
        self._url = url
        self._over = False

    def give_up(self) -> None:
        """Store nothing."""
        self._over = True

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.give_up()
        super().__exit__(kind, error, trace)

    def close(self) -> None:
        """Store what was written, once: if that fails, its error says so, and it is not tried again."""
        if not self._over:
            self._over = True
            self.seek(0)
            kind = mimetypes.guess_type(self._url.name)[0] or "application/octet-stream"
            to = (self._url.bucket or "", self._url.name)
            self._here.storage.upload(self, to, content_type=kind, size=self.getbuffer().nbytes)
        super().close()


class _TextWriter(io.TextIOWrapper):
    """Text on its way to an object."""

    def __init__(self, writer: _Writer) -> None:
        super().__init__(writer, encoding="utf-8")
        self._writer = writer

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self._writer.give_up()
        super().__exit__(kind, error, trace)
