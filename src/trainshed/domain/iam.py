"""Roles, principals and the access table: who may do what."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

ALL_PROJECTS = "*"
_VERSION_PREFIX = "version:"  #: user name prefix of the fetch tokens of remote hosts
_JOB_PREFIX = "job:"  #: user name prefix of job tokens; user names of people have no colon


def token_digest(secret: str) -> str:
    """Return the digest of a token's secret.

    Tokens are 256 random bits, so one plain hash is enough, and cheap enough for every request.
    """
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class Access(StrEnum):
    """What a request needs. `GRANTS` says which roles have it."""

    PUBLIC = "public"  #: needs no token
    CONNECT = "connect"  #: ask about the server and about the own token
    FETCH = "fetch"  #: download the artifacts of one job or version
    READ_JOB = "read job"  #: read a job, its log and its figures
    READ_OBJECTS = "read objects"  #: read buckets and objects, without policies
    WRITE_OBJECTS = "write objects"
    PREDICT = "predict"
    READ_STUDIES = "read studies"  #: read studies, their trials and their operations
    WRITE_STUDIES = "write studies"  #: create studies, and trials of one's own
    RUN_TRIALS = "run trials"  #: ask for trials, report measurements, complete and stop them
    WRITE_LOG = "write log"  #: add entries to the log of a job; the token of a job, to its own
    READ = "read"  #: everything else that can be read in a project
    WRITE = "write"  #: submit and change jobs, models, versions and buckets
    ADMIN = "admin"  #: tokens, policies, runtimes


class Role(StrEnum):
    """What a token may do in its project."""

    #: only downloads the artifacts of one job or version to the node that runs it
    ARTIFACT_READER = "artifact-reader"
    JOB = "job"  #: the code of one job
    VIEWER = "viewer"
    EDITOR = "editor"
    OWNER = "owner"


_STUDIES = frozenset({Access.READ_STUDIES, Access.WRITE_STUDIES, Access.RUN_TRIALS})
_VIEWER = frozenset(
    {
        *(Access.CONNECT, Access.FETCH, Access.READ_JOB, Access.READ_OBJECTS, Access.READ_STUDIES, Access.PREDICT),
        Access.READ,
    }
)
_EDITOR = _VIEWER | _STUDIES | {Access.WRITE_OBJECTS, Access.WRITE, Access.WRITE_LOG}
#: the access table. A role has exactly what is listed here, so a new kind of access is denied to all until it is added
GRANTS: Mapping[Role, frozenset[Access]] = {
    Role.ARTIFACT_READER: frozenset({Access.FETCH}),
    Role.JOB: frozenset(
        {
            *(Access.CONNECT, Access.READ_JOB, Access.READ_OBJECTS, Access.WRITE_OBJECTS),
            *(Access.PREDICT, Access.WRITE_LOG),
            *_STUDIES,
        }
    ),
    Role.VIEWER: _VIEWER,
    Role.EDITOR: _EDITOR,
    Role.OWNER: _EDITOR | {Access.ADMIN},
}
#: access that the token of a job or version has to its own job or version only
OWN_ONLY = frozenset({Access.FETCH, Access.READ_JOB})
#: roles that people can have
USER_ROLES = (Role.VIEWER, Role.EDITOR, Role.OWNER)


class UserKind(StrEnum):
    """What a name stands for."""

    USER = "user"  #: a person
    SERVICE_ACCOUNT = "service-account"  #: a program


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The holder of a token, as authorization sees it."""

    user: str
    project: str  #: a project id, or ALL_PROJECTS
    role: Role

    @classmethod
    def of_job(cls, project: str, job: str, role: Role) -> Self:
        """The principal of a job's code, or of a process that works for the job."""
        return cls(user=f"{_JOB_PREFIX}{job}", project=project, role=role)

    @property
    def job(self) -> str:
        """The id of the job. Empty for people."""
        return self.user.removeprefix(_JOB_PREFIX) if self.user.startswith(_JOB_PREFIX) else ""

    @classmethod
    def of_version(cls, project: str, model: str, version: str) -> Self:
        """The principal that downloads the artifacts of a version to a node."""
        return cls(user=f"{_VERSION_PREFIX}{model}/{version}", project=project, role=Role.ARTIFACT_READER)

    @property
    def version(self) -> tuple[str, str] | None:
        """The model and the version. Returns None for people and jobs."""
        if not self.user.startswith(_VERSION_PREFIX):
            return None
        model, _, version = self.user.removeprefix(_VERSION_PREFIX).partition("/")
        return model, version

    def sees(self, project: str) -> bool:
        return self.project in (ALL_PROJECTS, project)

    def may(self, access: Access, project: str) -> bool:
        return self.sees(project) and access in GRANTS[self.role]

    def may_name(self, access: Access, resource: Mapping[str, str]) -> bool:
        """Return whether this access reaches a resource, given by the names in its path.

        The token of a job reaches its own job, and that of a version its own version. Tokens of people reach all.
        """
        if access not in OWN_ONLY:
            return True
        if self.version is not None:
            return (resource.get("model"), resource.get("version")) == self.version
        return not self.job or resource.get("job") == self.job
