"""Who may do what: roles, principals, and the policies people set on single resources."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

EVERY_PROJECT = "*"


class Access(IntEnum):
    """What a request needs. Each level includes the ones before it."""

    PUBLIC = 0  #: no token at all
    READ = 1
    WRITE = 2
    ADMIN = 3  #: tokens, policies, runtimes


class Role(StrEnum):
    """What a token may do in its project."""

    VIEWER = "viewer"
    EDITOR = "editor"
    OWNER = "owner"

    @property
    def access(self) -> Access:
        return {Role.VIEWER: Access.READ, Role.EDITOR: Access.WRITE, Role.OWNER: Access.ADMIN}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Whoever holds a token, as far as a request is concerned."""

    user: str
    project: str  #: a project id, or EVERY_PROJECT
    role: Role

    def sees(self, project: str) -> bool:
        return self.project in (EVERY_PROJECT, project)

    def may(self, access: Access, project: str) -> bool:
        return self.sees(project) and self.role.access >= access
