"""Roles, principals and access levels: who may do what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Self

ALL_PROJECTS = "*"
_VERSION_PREFIX = "version:"  #: user name prefix of the fetch tokens of remote hosts
_JOB_PREFIX = "job:"  #: user name prefix of job tokens; user names of people have no colon


class Access(IntEnum):
    """The access level that a request needs. Each level includes the ones before it."""

    PUBLIC = 0  #: needs no token
    FETCH = 1  #: download the artifacts of one job or version
    READ = 2
    WRITE = 3
    ADMIN = 4  #: tokens, policies, runtimes


class Role(StrEnum):
    """What a token may do in its project."""

    #: only downloads the artifacts of one job or version to the node that runs it
    ARTIFACT_READER = "artifact-reader"
    VIEWER = "viewer"
    EDITOR = "editor"
    OWNER = "owner"

    @property
    def access(self) -> Access:
        return _ACCESS[self]


_ACCESS = {
    Role.ARTIFACT_READER: Access.FETCH,
    Role.VIEWER: Access.READ,
    Role.EDITOR: Access.WRITE,
    Role.OWNER: Access.ADMIN,
}
#: roles that people can have
USER_ROLES = (Role.VIEWER, Role.EDITOR, Role.OWNER)


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
        return self.sees(project) and self.role.access >= access
