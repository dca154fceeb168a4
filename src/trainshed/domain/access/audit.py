"""The audit record: one entry for each change and each refused try. An entry never holds a secret."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from trainshed.domain.logs import insert_id
from trainshed.domain.times import rfc3339

AUDIT_LOG = "cloudaudit.googleapis.com/activity"  #: the name of this log in Cloud Logging
OK = "OK"  #: the outcome of a change that was made
REFUSED = "refused"  #: in a query: every other outcome
MAX_TEXT = 1000  #: characters of a field
#: the numbers of google.rpc.Code
_CODES = {OK: 0, "INVALID_ARGUMENT": 3, "NOT_FOUND": 5, "PERMISSION_DENIED": 7, "RESOURCE_EXHAUSTED": 8}
_CODES |= {"FAILED_PRECONDITION": 9, "ABORTED": 10, "UNAUTHENTICATED": 16}
_UNKNOWN_CODE = 2
_SECRET = re.compile(r"ts_[A-Za-z0-9_-]{8,}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def audit_log_name(project: str) -> str:
    """The name of a project's audit log, as Cloud Logging writes it."""
    return f"projects/{project}/logs/{quote(AUDIT_LOG, safe='')}"


def masked(text: str) -> str:
    """Return text without tokens and control characters, at most `MAX_TEXT` long."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _SECRET.sub("ts_...", text))[:MAX_TEXT]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Who did what, from where, on which resource, and the outcome."""

    time_us: int
    project: str  #: empty: the server
    user: str  #: empty: unknown
    address: str
    method: str
    resource: str
    outcome: str  #: OK, or the code of an error such as PERMISSION_DENIED
    times: int = 1  #: how often, if several tries share an entry
    id: int = 0  #: in the order of commits; 0 until it is written

    @property
    def position(self) -> str:
        return insert_id(self.time_us, attempt=0, position=self.id)

    @property
    def key(self) -> tuple[str, str, str]:
        """A unique key that orders entries by time."""
        return self.position, self.project, ""

    @property
    def message(self) -> str:
        return f"{self.method} {self.resource}"

    def line(self) -> dict[str, Any]:
        """The entry in Trainshed's own API."""
        return {
            "id": str(self.id),
            "time": rfc3339(self.time_us),
            "project": self.project,
            "user": self.user,
            "address": self.address,
            "method": self.method,
            "resource": self.resource,
            "outcome": self.outcome,
            "times": self.times,
        }

    def body(self) -> dict[str, Any]:
        """Cloud Logging's LogEntry with Cloud Audit's AuditLog in it."""
        timestamp = rfc3339(self.time_us, digits=9)
        status = (
            {} if self.outcome == OK else {"code": _CODES.get(self.outcome, _UNKNOWN_CODE), "message": self.outcome}
        )
        return {
            "insertId": self.position,
            "logName": audit_log_name(self.project),
            "protoPayload": {
                "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
                "authenticationInfo": {"principalEmail": self.user},
                "methodName": self.method,
                "requestMetadata": {"callerIp": self.address},
                "resourceName": self.resource,
                "serviceName": "trainshed",
                "status": status,
            },
            "receiveTimestamp": timestamp,
            "resource": {"labels": {"project_id": self.project}, "type": "project"},
            "severity": "NOTICE" if self.outcome == OK else "ERROR",
            "timestamp": timestamp,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSearch:
    """Which entries are wanted. Empty fields select all."""

    project: str  #: or ALL_PROJECTS
    user: str = ""
    method: str = ""  #: a part of it
    resource: str = ""  #: a part of it
    outcome: str = ""  #: or `REFUSED`
    since_us: int = 0
