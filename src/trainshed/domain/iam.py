"""Who may do what: roles, principals, and the policies people set on single resources."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Self

ALL_PROJECTS = "*"
_VERSION = "version:"  #: begins that of the tokens that hosts on other machines have
_JOB = "job:"  #: begins the user name of the tokens that jobs have; people have no colon in theirs


class Access(IntEnum):
    """What a request needs. Each level includes the ones before it."""

    PUBLIC = 0  #: no token at all
    FETCH = 1  #: the packages of a job, or the files of a version, byte by byte as they are
    READ = 2
    WRITE = 3
    ADMIN = 4  #: tokens, policies, runtimes


class Role(StrEnum):
    """What a token may do in its project."""

    #: brings the packages of one job, or the files of one version, to the machine where that runs, and can do nothing
    #: else
    COURIER = "courier"
    VIEWER = "viewer"
    EDITOR = "editor"
    OWNER = "owner"

    @property
    def access(self) -> Access:
        return _ACCESS[self]


_ACCESS = {
    Role.COURIER: Access.FETCH,
    Role.VIEWER: Access.READ,
    Role.EDITOR: Access.WRITE,
    Role.OWNER: Access.ADMIN,
}
#: what people can have
USER_ROLES = (Role.VIEWER, Role.EDITOR, Role.OWNER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Whoever holds a token, as far as a request is concerned."""

    user: str
    project: str  #: a project id, or EVERY_PROJECT
    role: Role

    @classmethod
    def of_job(cls, project: str, job: str, role: Role) -> Self:
        """The code of a job, or what works for it."""
        return cls(user=f"{_JOB}{job}", project=project, role=role)

    @property
    def job(self) -> str:
        """The job that this is about; empty for people."""
        return self.user.removeprefix(_JOB) if self.user.startswith(_JOB) else ""

    @classmethod
    def of_version(cls, project: str, model: str, version: str) -> Self:
        """What brings the files of a version to a machine that is to serve it."""
        return cls(user=f"{_VERSION}{model}/{version}", project=project, role=Role.COURIER)

    @property
    def version(self) -> tuple[str, str] | None:
        """The model and the version that this is about; None for people and jobs."""
        if not self.user.startswith(_VERSION):
            return None
        model, _, version = self.user.removeprefix(_VERSION).partition("/")
        return model, version

    def sees(self, project: str) -> bool:
        return self.project in (ALL_PROJECTS, project)

    def may(self, access: Access, project: str) -> bool:
        return self.sees(project) and self.role.access >= access
