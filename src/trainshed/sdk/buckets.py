"""Buckets: upload, download, and objects opened as files."""

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
from trainshed.domain.uris import bucket_of
from trainshed.errors import InvalidArgumentError

_IN_MEMORY = 16 << 20  #: larger objects are read through a temporary file

Mode = Literal["r", "rb", "w", "wb"]


class Buckets:
    """The buckets of a project: `connect().buckets`. Objects are named gs://BUCKET/NAME."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context

    def create(self, name: str, *, exist_ok: bool = False) -> Bucket:
        """Create a bucket.

        Raises `AlreadyExistsError` if the name is taken, unless `exist_ok` and the bucket is this project's.
        """
        name = bucket_of(name)
        if not (exist_ok and any(bucket.name == name for bucket in self.list())):
            self._context.storage.create_bucket(self._context.project, {"name": name})
        return Bucket(self._context, name)

    def get(self, name: str) -> Bucket:
        """Return an existing bucket. Raises `NotFoundError` if there is none of this name."""
        name = bucket_of(name)
        self._context.storage.bucket(name)
        return Bucket(self._context, name)

    def list(self) -> list[Bucket]:
        """List all buckets of the project, by name."""
        return [Bucket(self._context, item["name"]) for item in self._context.storage.buckets(self._context.project)]

    def upload(self, source: str | Path, to: str) -> str:
        """Copy a file, or a folder with its contents, to gs://BUCKET/NAME, by the rules of `cp -r`. Returns `to`."""
        self._copy([str(Path(source).expanduser())], str(Url.cloud(to)))
        return to

    def download(self, source: str, to: str | Path) -> Path:
        """Copy gs://BUCKET/NAME, or a folder of objects, to this machine, by the rules of `cp -r`. Returns `to`."""
        path = Path(to).expanduser()
        self._copy([str(Url.cloud(source))], str(path) + ("/" if path.is_dir() else ""))
        return path

    def open(self, uri: str, mode: Mode = "r") -> IO[Any]:
        """Open an object as a file: `r` and `w` for text in UTF-8, `rb` and `wb` for bytes.

        Written bytes become the object, whole, when the file is closed. A `with` block that fails writes nothing.
        """
        url = Url.cloud(uri)
        if not url.bucket or not url.name or mode not in ("r", "rb", "w", "wb"):
            raise InvalidArgumentError(
                f"Opening needs gs://BUCKET/NAME and one of the modes r, rb, w, wb; not {uri!r}, {mode!r}."
            )
        if mode.startswith("w"):
            writer = _Writer(self._context, url)
            return writer if mode == "wb" else _TextWriter(writer)
        raw = self._read(url)
        return raw if mode == "rb" else io.TextIOWrapper(raw, encoding="utf-8")

    def _read(self, url: Url) -> Any:
        path = f"/storage/v1/b/{segment(url.bucket or '')}/o/{segment(url.name)}"
        resource = self._context.client.call("GET", path)
        file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  the caller closes it
        self._context.storage.download(resource, file)  # type: ignore[arg-type]  # it has `write`
        file.seek(0)
        return file

    def _copy(self, sources: Sequence[str], to: str) -> None:
        storage = self._context.storage
        transfers = plan_copy(storage, self._context.project, sources, to, recursive=True)
        in_parallel(lambda each: run_transfer(storage, each, progress=lambda count: None), transfers)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One object, as it was when it was listed."""

    uri: str
    size: int
    updated: str  #: RFC 3339


class Bucket:
    """One bucket. It stores only a name: each call goes to the server."""

    def __init__(self, context: ClientContext, name: str) -> None:
        self._context = context
        self.name = name

    @property
    def uri(self) -> str:
        """gs://NAME"""
        return f"gs://{self.name}"

    def folders(self, prefix: str = "") -> list[str]:
        """List the gs:// URIs of the folders directly below `prefix`, by name, such as exports."""
        start = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
        prefixes = self._context.storage.list(self.name, prefix=start, delimiter="/").prefixes
        return [f"{self.uri}/{name}" for name in prefixes]

    def list(self, prefix: str = "") -> list[StoredObject]:
        """List the objects whose names start with `prefix`, by name."""
        return [
            StoredObject(uri=f"{self.uri}/{item['name']}", size=int(item["size"]), updated=item["updated"])
            for item in self._context.storage.list(self.name, prefix=prefix).objects
        ]

    def upload(self, source: str | Path, to: str = "") -> str:
        """Copy a file or folder below `to`. Returns the gs:// URI of `to`."""
        return Buckets(self._context).upload(source, f"{self.uri}/{to}")

    def download(self, name: str, to: str | Path) -> Path:
        """Copy an object or a folder of objects to this machine."""
        return Buckets(self._context).download(f"{self.uri}/{name}", to)

    def open(self, name: str, mode: Mode = "r") -> IO[Any]:
        """Open an object as a file, as `Buckets.open` does."""
        return Buckets(self._context).open(f"{self.uri}/{name}", mode)

    def __repr__(self) -> str:
        return f"<Bucket {self.uri}>"


class _Writer(io.BytesIO):
    """A buffer that becomes an object when it is closed."""

    def __init__(self, context: ClientContext, url: Url) -> None:
        super().__init__()
        self._context = context
        self._url = url
        self._finished = False

    def discard(self) -> None:
        """Store nothing."""
        self._finished = True

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.discard()
        super().__exit__(kind, error, trace)

    def close(self) -> None:
        """Store the bytes, once. If that fails it raises and does not retry."""
        if not self._finished:
            self._finished = True
            self.seek(0)
            kind = mimetypes.guess_type(self._url.name)[0] or "application/octet-stream"
            to = (self._url.bucket or "", self._url.name)
            self._context.storage.upload(self, to, content_type=kind, size=self.getbuffer().nbytes)
        super().close()


class _TextWriter(io.TextIOWrapper):
    """Text that becomes an object when it is closed."""

    def __init__(self, writer: _Writer) -> None:
        super().__init__(writer, encoding="utf-8")
        self._writer = writer

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self._writer.discard()
        super().__exit__(kind, error, trace)
