"""Entries that clients of Cloud Logging write. Each becomes a record in the log of its job."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson

from trainshed.config import Home
from trainshed.domain import names
from trainshed.domain.access.secrets import masked
from trainshed.domain.filters.terms import SEVERITIES
from trainshed.domain.iam import Access, Principal
from trainshed.domain.jobs.job import Job
from trainshed.domain.json_fields import snake
from trainshed.domain.logs import SERVICE
from trainshed.domain.times import now_us
from trainshed.errors import FailedPreconditionError, InvalidArgumentError, PermissionDeniedError
from trainshed.services.logs.job_log import log_files
from trainshed.services.logs.log_names import WrittenLogs
from trainshed.store.jobs import JobStore

MAX_ENTRIES = 1000  #: of one request
MAX_MESSAGE_CHARACTERS = 256 << 10
_LOG_NAME = re.compile(r"projects/([^/]+)/logs/([^/]+)")
_LOG_ID = re.compile(r"[A-Za-z0-9/_.-]{1,100}", re.ASCII)
_JOB_LABEL = "ml.googleapis.com/job_id"
#: fields of an entry in snake_case -> in camelCase
_FIELDS = {snake(name): name for name in ("logName", "textPayload", "jsonPayload", "protoPayload")}
_LEVELS = {number: name for name, number in SEVERITIES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenEntry:
    """One entry to write, checked."""

    project: str
    job: str  #: empty: that of the token
    log: str
    severity: str
    message: str


def parse_entries(body: Mapping[str, Any]) -> list[WrittenEntry]:
    """Return the entries of an `entries:write` request. Raises `InvalidArgumentError`.

    What the request says of log, resource and labels is for the entries that don't say it themselves.
    """
    entries = body.get("entries")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidArgumentError("`entries` is a list of log entries.", field="entries")
    if len(entries) > MAX_ENTRIES:
        raise InvalidArgumentError(f"A request has at most {MAX_ENTRIES:,} entries.", field="entries")
    shared = {name: body[name] for name in ("logName", "resource") if body.get(name)}
    labels = _labels(body)
    named = ({_FIELDS.get(key, key): value for key, value in entry.items()} for entry in entries)
    return [_parse({**shared, **entry, "labels": labels | _labels(entry)}) for entry in named]


def _parse(entry: Mapping[str, Any]) -> WrittenEntry:
    name = _LOG_NAME.fullmatch(str(entry.get("logName", "")))
    log = unquote(name[2]) if name else ""
    if name is None or not _LOG_ID.fullmatch(log) or log == SERVICE:
        raise InvalidArgumentError(
            "`logName` is like projects/my-project/logs/my-log, with letters, digits and ._-/ in the name of the log. "
            f"The log {SERVICE} is the server's own.",
            field="log_name",
        )
    resource = entry.get("resource")
    job = entry["labels"].get(_JOB_LABEL) or _labels(resource if isinstance(resource, dict) else {}).get("job_id", "")
    return WrittenEntry(
        project=names.project_id(name[1]),
        job=names.job_id(job) if job else "",
        log=log,
        severity=_severity(entry.get("severity", "DEFAULT")),
        message=_message(entry)[:MAX_MESSAGE_CHARACTERS],
    )


def _labels(body: Mapping[str, Any]) -> dict[str, str]:
    labels = body.get("labels") or {}
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise InvalidArgumentError("`labels` is a map from strings to strings.", field="labels")
    return labels


def _severity(value: object) -> str:
    if isinstance(value, int):
        return _LEVELS.get(value // 100 * 100, "DEFAULT")
    name = str(value).upper()
    return name if name in SEVERITIES else "DEFAULT"


def _message(entry: Mapping[str, Any]) -> str:
    """Return the text of an entry, or all of its payload as JSON."""
    if isinstance(text := entry.get("textPayload"), str):
        return text
    payload = entry.get("jsonPayload", entry.get("protoPayload"))
    if not isinstance(payload, dict):
        raise InvalidArgumentError("An entry has a textPayload, a jsonPayload or a protoPayload.", field="entries")
    message = payload.get("message")
    return message if isinstance(message, str) else orjson.dumps(payload).decode()


class LogEntryWriter:
    """Writes entries into the logs of running jobs. Thread-safe."""

    def __init__(self, jobs: JobStore, home: Home, secrets: Callable[[Job], Sequence[str]] = lambda job: ()) -> None:
        """`secrets` returns the values of secrets that a job was given. They are masked."""
        self._secrets = secrets
        self._jobs = jobs
        self._home = home
        self._written = WrittenLogs(home)

    def write(self, principal: Principal, entries: list[WrittenEntry], *, dry_run: bool) -> None:
        """Append the entries to the logs of their jobs, at the time of this call.

        Raises `PermissionDeniedError` for a job that is not the token's own or that it may not write to, and
        `FailedPreconditionError` if a job does not run. Nothing is written in either case.
        """
        by_job: dict[tuple[str, str], list[WrittenEntry]] = {}
        for entry in entries:
            by_job.setdefault((entry.project, _job_of(principal, entry)), []).append(entry)
        logs = []
        for (project, job_id), own in by_job.items():
            job = self._jobs.get(project, job_id)
            if job.ended or job.attempt == 0:
                raise FailedPreconditionError(f"The job {job_id} does not run, so nothing can be written to its log.")
            logs.append((log_files(self._home, job)[-1], own, self._secrets(job)))
        if dry_run:
            return
        for log, own, values in logs:
            log.append([(now_us(), entry.log, entry.severity, masked(entry.message, values)) for entry in own])
        for project in {entry.project for entry in entries}:
            self._written.add(project, (entry.log for entry in entries if entry.project == project))


def _job_of(principal: Principal, entry: WrittenEntry) -> str:
    if not principal.may(Access.WRITE_LOG, entry.project) or (principal.job and entry.job not in ("", principal.job)):
        raise PermissionDeniedError(f"This token may not write to this log of project {entry.project}.")
    if job := entry.job or principal.job:
        return job
    raise InvalidArgumentError(
        f"Logs are kept by job. Name it in the label {_JOB_LABEL}, or write with the credentials of the job.",
        field="labels",
    )
