"""Replays of logged requests: compares the responses and latencies of another version."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from trainshed.domain.models.answer_difference import json_value, outputs, same
from trainshed.domain.objects import ListQuery, ObjectDraft, ObjectMetadata
from trainshed.domain.work_budget import WorkBudget
from trainshed.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from trainshed.gateway.gateway import FrameKind, PredictionGateway
from trainshed.gateway.protocols.logged_forms import logged_text, replayed_body
from trainshed.gateway.protocols.wire_forms import LOGGED_PROTOCOLS
from trainshed.gateway.request_log import folder_of
from trainshed.gateway.routes import PredictTarget, RequestLogTarget, Routes
from trainshed.services.storage.objects import PIECE, Objects, ObjectSource

MAX_REPLAYED = 10_000  #: requests per replay
MAX_EXAMPLES = 10
MAX_OBJECT_BYTES = 128 << 20  #: of logged requests; the gateway writes smaller objects, so a larger one is not its

_KINDS = {protocol: kind for kind, protocol in LOGGED_PROTOCOLS.items()}


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One line of a request log."""

    time: str
    request: str
    answer: str
    latency_ms: float
    kind: int = FrameKind.PREDICT


class LoggedRequests:
    """Reads and writes the objects with logged requests."""

    def __init__(self, objects: Objects, *, owner: Callable[[str], str]) -> None:
        """`owner` returns the project of a bucket, or raises `NotFoundError`."""
        self._objects = objects
        self._owner = owner

    def write(self, project: str, bucket: str, name: str, lines: bytes) -> None:
        """Write a new object into a bucket of this project. Raises `NotFoundError` if it has no such bucket."""
        self._check(project, bucket)
        draft = ObjectDraft(bucket=bucket, name=name, traits=ObjectMetadata(content_type="application/x-ndjson"))
        self._objects.store(None, lines, draft)

    def newest_first(
        self, project: str, log: RequestLogTarget, model: str, budget: WorkBudget
    ) -> Iterator[LoggedRequest]:
        """Yield the logged requests of a model, newest object first, until the budget is exhausted."""
        self._check(project, log.bucket)
        days = self._names(log.bucket, ListQuery(prefix=folder_of(log, model), delimiter="/", checksums=False), budget)
        for day in reversed(days):
            for name in reversed(self._names(log.bucket, ListQuery(prefix=day, checksums=False), budget)):
                if budget.exhausted:
                    return
                yield from reversed(self._read(log.bucket, name, budget))

    def _check(self, project: str, bucket: str) -> None:
        if self._owner(bucket) != project:
            raise NotFoundError(f"Project {project} has no bucket {bucket}.")

    def _names(self, bucket: str, query: ListQuery, budget: WorkBudget) -> list[str]:
        """Return all prefixes of a listing with a delimiter, or all objects of one without."""
        names: list[str] = []
        after = ""
        while True:
            page = self._objects.list(bucket, _after(query, after), budget)
            names.extend(page.prefixes if query.delimiter else (item.name for item in page.items))
            if not (after := page.next):
                return names

    def _read(self, bucket: str, name: str, budget: WorkBudget) -> list[LoggedRequest]:
        pieces = []
        try:
            with self._objects.open(ObjectSource(bucket=bucket, name=name)) as reader:
                if reader.info.size > MAX_OBJECT_BYTES:
                    return []
                for offset in range(0, reader.info.size, PIECE):
                    pieces.append(reader.read(offset))
                    budget.spend(len(pieces[-1]))
        except NotFoundError:  # deleted after the listing
            return []
        lines = b"".join(pieces).splitlines()
        return [request for line in lines if (request := _parse_line(line)) is not None]


def _after(query: ListQuery, after: str) -> ListQuery:
    return ListQuery(prefix=query.prefix, delimiter=query.delimiter, after=after, checksums=False)


def _parse_line(line: bytes) -> LoggedRequest | None:
    """Parse a line. Returns None if it is not a logged request: users may add other objects to the bucket."""
    try:
        fields = json.loads(line)
        return LoggedRequest(
            *(str(fields["time"]), str(fields["raw_data"]), str(fields["raw_prediction"]), float(fields["latency_ms"])),
            kind=_KINDS[fields.get("protocol", "")],
        )
    except (ValueError, KeyError, TypeError):
        return None


class Replays:
    """Sends logged requests of a model to one of its versions. They are neither counted nor logged again."""

    def __init__(self, routes: Routes, predictions: PredictionGateway, logged: LoggedRequests) -> None:
        self._routes = routes
        self._gateway = predictions
        self._logged_requests = logged

    def run(
        self, project: str, model: str, version: str, body: Mapping[str, Any], budget: WorkBudget
    ) -> dict[str, Any]:
        """Replay the last requests one by one and compare the responses.

        Blocks until all are done or the budget is exhausted; then `complete` is false.
        """
        count = _count(body)
        target = PredictTarget(project=project, model=model, version=version, kind=FrameKind.PREDICT)
        requests = self._last_requests(target, count, budget)
        examples: list[dict[str, Any]] = []
        after_ms: list[float] = []
        changed = 0
        for request in requests:
            budget.spend(0)
            if budget.overdue:
                break
            kind = request.kind
            status, response, seconds = self._gateway.replay(
                replace(target, kind=kind), replayed_body(kind, request.request)
            )
            after_ms.append(seconds * 1000)
            example = difference(request, logged_text(kind if status == 200 else FrameKind.PREDICT, response))
            if example is not None:
                changed += 1
                examples.append(example)
                del examples[MAX_EXAMPLES:]
        before_ms = [request.latency_ms for request in requests[: len(after_ms)]]
        return {
            "compared": len(after_ms),
            "complete": len(after_ms) == len(requests) and (len(requests) == count or not budget.exhausted),
            "changed": changed,
            "examples": examples,
            "latencyMs": {"before": _percentiles(before_ms), "after": _percentiles(after_ms)},
        }

    def _last_requests(self, target: PredictTarget, count: int, budget: WorkBudget) -> list[LoggedRequest]:
        """Return the last requests to all versions of the model that have a log, oldest first."""
        route = self._routes.models.get((target.project, target.model))
        if route is None or target.version not in route.versions:
            raise NotFoundError(f"There is no version {target.version} of model {target.model} that could be asked.")
        logs = {(each.log.bucket, each.log.folder): each.log for each in route.versions.values() if each.log}
        if not logs:
            raise FailedPreconditionError(
                f"No version of model {target.model} logs requests, so there are none to replay. `trainshed versions "
                f"update --help` says how to log a share of them."
            )
        self._gateway.logs.flush()
        requests = [
            request
            for log in logs.values()
            for request in islice(self._logged_requests.newest_first(target.project, log, target.model, budget), count)
        ]
        return sorted(requests, key=lambda request: request.time)[-count:]


def _count(body: Mapping[str, Any]) -> int:
    if unknown := set(body) - {"count"}:
        raise InvalidArgumentError(f"Unknown field {min(unknown)!r}. A replay has: count.")
    count = body.get("count", 100)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_REPLAYED:
        raise InvalidArgumentError(f"count must be a whole number from 1 to {MAX_REPLAYED:,}.", field="count")
    return count


def difference(request: LoggedRequest, response: str) -> dict[str, Any] | None:
    """Return the first instance whose prediction has changed, with both predictions. Returns None if all are equal.

    Floats are compared with a tolerance; everything else must be equal.
    """
    if request.answer == response:
        return None
    instances = _list(request.request, "instances")
    before, after = _list(request.answer, "predictions"), _list(response, "predictions")
    if instances is None and same(outputs(json_value(request.answer)), outputs(json_value(response))):
        return None  # a request of another protocol, whose responses are compared as a whole
    if before is None or after is None or instances is None or len(before) != len(after):
        return {"instance": instances, "before": json_value(request.answer), "after": json_value(response)}
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if not same(old, new):
            return {"instance": instances[index] if index < len(instances) else None, "before": old, "after": new}
    return None


def _list(text: str, field: str) -> list[Any] | None:
    value = json_value(text)
    items = value.get(field) if isinstance(value, dict) else None
    return items if isinstance(items, list) else None


def _percentiles(ms: list[float]) -> dict[str, float]:
    ordered = sorted(ms) or [0.0]
    shares = {"p50": 0.5, "p99": 0.99}
    return {name: round(ordered[math.ceil(share * len(ordered)) - 1], 3) for name, share in shares.items()}
