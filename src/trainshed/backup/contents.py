"""What becomes of each table and of each part of the state folder. A test finds those that are not here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from trainshed.config import Home


class Handling(StrEnum):
    """What a backup does with a table, a file or a folder."""

    BACKED_UP = "backed up"
    REBUILT = "rebuilt"  #: by the server, when it is needed
    THROWN_AWAY = "thrown away"


@dataclass(frozen=True, slots=True)
class Content:
    """A part of the state. With `option`, it is in a backup only if the option is given."""

    handling: Handling
    description: str
    option: str = ""


RESTORE_FOLDER = "restore"  #: in the state folder: the plan and the files of a restore that is not complete
REPLACED_FOLDER = "replaced"  #: in the state folder: what restores replaced, by time

_IN, _REBUILT, _OUT = Handling.BACKED_UP, Handling.REBUILT, Handling.THROWN_AWAY

TABLES: dict[str, Content] = {
    "audit": Content(_IN, "the record of changes and refused tries"),
    "buckets": Content(_IN, "names, projects and labels of buckets"),
    "job_events": Content(_IN, "the history of jobs"),
    "jobs": Content(_IN, "jobs"),
    "models": Content(_IN, "models"),
    "operations": Content(_IN, "long-running operations"),
    "own_points": Content(_IN, "points that people added to searches"),
    "policies": Content(_IN, "IAM policies"),
    "projects": Content(_IN, "projects and their numbers"),
    "quotas": Content(_IN, "limits of projects and users"),
    "networks": Content(_IN, "what user code of projects reaches"),
    "search_steering": Content(_IN, "how people steer searches while they run"),
    "secrets": Content(_IN, "secrets of projects, encrypted"),
    "slot_usage": Content(_IN, "slots that projects and users had in use lately"),
    "studies": Content(_IN, "studies"),
    "study_measurements": Content(_IN, "measurements of trials of studies"),
    "study_operations": Content(_IN, "operations of studies, for an hour"),
    "study_trials": Content(_IN, "trials of studies"),
    "tokens": Content(_IN, "hashes of tokens, and the tokens of console sessions"),
    "trainshed_schema": Content(_IN, "the version of the schema"),
    "trials": Content(_IN, "trials of tuning jobs: their values and what they reported"),
    "users": Content(_IN, "users and service accounts"),
    "versions": Content(_IN, "versions of models"),
}

#: Files and folders of the state folder, by name.
FILES: dict[str, Content] = {
    "state.db": Content(_IN, "the database, if it is SQLite: a consistent copy"),
    "state.db-wal": Content(_OUT, "its log; the copy has what is in it"),
    "state.db-shm": Content(_OUT, "its index"),
    "state.db.new": Content(_OUT, "the draft of a new database"),
    "token": Content(_IN, "the owner's token"),
    "secret-key": Content(_IN, "the key of secrets, unless `--without-secret-key` is given"),
    "token-for": Content(_IN, "the server that the token is for"),
    "sessions.json": Content(_OUT, "sign-ins of this command line to other servers"),
    "config.toml": Content(_IN, "settings"),
    "certificates": Content(_IN, "the server's authority, its certificates and their keys"),
    "models": Content(_IN, "snapshots of versions"),
    "hosts": Content(_IN, "what hosts of versions are started with, and their output"),
    "host-secrets": Content(_OUT, "secrets of hosts that run, as files"),
    "packages": Content(_IN, "installed packages of versions; those of jobs are rebuilt"),
    "notebooks": Content(_IN, "notebooks"),
    "buckets": Content(_IN, "objects, with their metadata", option="--buckets"),
    "jobs": Content(_IN, "journals, logs and samples of attempts", option="--logs"),
    "noncurrent": Content(_IN, "noncurrent versions of objects", option="--buckets"),
    "public": Content(_IN, "public objects that this server has itself"),
    "mirrors": Content(_REBUILT, "copies of event files of cloud buckets"),
    "runtimes": Content(_REBUILT, "environments of runtimes"),
    "node": Content(_REBUILT, "the code that is shipped"),
    "bridge": Content(_REBUILT, "the Ray bridge and its reservations"),
    "warm": Content(_REBUILT, "warm processes"),
    "shell": Content(_REBUILT, "programs of `trainshed shell`"),
    "proxy-port": Content(_REBUILT, "the port of the proxy for trainers"),
    "server.json": Content(_OUT, "the address of the running server"),
    "server.lock": Content(_OUT, "the lock of the running server"),
    "server.log": Content(_OUT, "the server's own log"),
    "server.log.1": Content(_OUT, "the older part of that log"),
    "server.log.new": Content(_OUT, "the draft of a new log"),
    "uploads": Content(_OUT, "incomplete uploads"),
    "tensorboards": Content(_OUT, "output of TensorBoards"),
    "notebook": Content(_OUT, "Jupyter's own files"),
    "backups": Content(_OUT, "the copies of the database that the server makes"),
    RESTORE_FOLDER: Content(_OUT, "a restore that is not complete"),
    REPLACED_FOLDER: Content(_OUT, "what a restore replaced"),
}


def plan_path(home: Home) -> Path:
    """The plan of a restore that is committed and not complete."""
    return home.path / RESTORE_FOLDER / "plan.json"


def restorable(name: str) -> bool:
    """Whether a backup can have this part of the state folder."""
    return name in FILES and FILES[name].handling is Handling.BACKED_UP
