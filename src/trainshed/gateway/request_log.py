"""The request log: writes a sample of requests and responses as JSON lines into objects of a bucket."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import orjson

from trainshed.background import BackgroundLoop
from trainshed.domain.times import now_us, rfc3339
from trainshed.errors import TrainshedError
from trainshed.gateway.protocols.logged_forms import logged_text
from trainshed.gateway.protocols.wire_forms import LOGGED_PROTOCOLS
from trainshed.gateway.routes import RequestLogTarget, VersionRoute
from trainshed.serving.frames import FrameKind

LOG = logging.getLogger("trainshed.predict")

FLUSH_INTERVAL_S = 5.0
MAX_BUFFERED_BYTES = 64 << 20  #: of unwritten requests and responses; more are counted and dropped

#: project, bucket, name, bytes: writes an object of the project's own bucket, all or nothing
Write = Callable[[str, str, str, bytes], object]


@dataclass(frozen=True, slots=True)
class LoggedExchange:
    """A request and its response, as frames carry them."""

    request: bytes
    answer: bytes
    seconds: float
    kind: int = FrameKind.PREDICT


@dataclass(frozen=True, slots=True)
class _Entry:
    project: str
    log: RequestLogTarget
    model: str
    version: str
    time_us: int
    request: bytes
    answer: bytes
    latency_ms: float
    kind: int

    @property
    def size(self) -> int:
        return len(self.request) + len(self.answer)

    @property
    def destination(self) -> tuple[str, str, str, str, str]:
        return self.project, self.log.bucket, self.log.folder, self.model, self.version


def folder_of(log: RequestLogTarget, model: str) -> str:
    """Return the name prefix of a model's logged requests, with a slash at the end. Days are folders below it."""
    return f"{log.folder}/{model}/" if log.folder else f"{model}/"


class RequestLog(Protocol):
    """Where the gateway puts requests that are to be logged."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """Blocks until all that was added is written."""

    def flush(self) -> None:
        """Write what was added now."""

    def add(self, route: VersionRoute, log: RequestLogTarget, exchange: LoggedExchange) -> None:
        """Add a request before its response is sent."""


class RequestLogWriter:
    """Buffers log entries and writes them on its own thread every few seconds. `add` never blocks."""

    def __init__(self, write: Write, *, clock: Callable[[], int] = now_us) -> None:
        self._write = write
        self._clock = clock
        self._entries: list[_Entry] = []
        self._bytes = 0
        self._dropped = 0
        self._buffer_lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._loop = BackgroundLoop("request-log", self._step)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        """Stop the thread and write the remaining entries."""
        self._loop.stop()
        self._loop.join()
        self.flush()

    def _step(self) -> float:
        self.flush()
        return FLUSH_INTERVAL_S

    def add(self, route: VersionRoute, log: RequestLogTarget, exchange: LoggedExchange) -> None:
        entry = _Entry(
            *(route.project, log, route.model, route.version, self._clock(), exchange.request, exchange.answer),
            latency_ms=round(exchange.seconds * 1000, 3),
            kind=exchange.kind,
        )
        with self._buffer_lock:
            if self._bytes + entry.size > MAX_BUFFERED_BYTES:
                self._dropped += 1
                return
            self._entries.append(entry)
            self._bytes += entry.size

    def flush(self) -> None:
        """Write all buffered entries. Entries that cannot be written are reported in the server's log and dropped."""
        with self._flush_lock:
            with self._buffer_lock:
                entries, self._entries = self._entries, []
                dropped, self._dropped = self._dropped, 0
                self._bytes = 0
            if dropped:
                LOG.warning("requestlog.dropped count=%d More came than could be written.", dropped)
            for _, group in groupby(
                sorted(entries, key=lambda each: each.destination), key=lambda each: each.destination
            ):
                self._write_group(list(group))

    def _write_group(self, entries: list[_Entry]) -> None:
        first = entries[0]
        day, _, clock = rfc3339(first.time_us).removesuffix("Z").partition("T")
        moment = clock.replace(":", "").replace(".", "-")
        name = f"{folder_of(first.log, first.model)}{day}/{moment}-{first.version}-{secrets.token_hex(3)}.jsonl"
        try:
            self._write(first.project, first.log.bucket, name, b"".join(_lines(entries)))
        except (TrainshedError, OSError) as exc:
            LOG.warning(
                "requestlog.lost model=%s version=%s count=%d reason=%r",
                *(first.model, first.version, len(entries), str(exc)),
            )


def _lines(entries: Iterable[_Entry]) -> Iterable[bytes]:
    for entry in entries:
        line = {
            "model": entry.model,
            "model_version": entry.version,
            "time": rfc3339(entry.time_us),
            "raw_data": logged_text(entry.kind, entry.request),
            "raw_prediction": logged_text(entry.kind, entry.answer),
            "latency_ms": entry.latency_ms,
        }
        if protocol := LOGGED_PROTOCOLS[entry.kind]:
            line["protocol"] = protocol
        yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
