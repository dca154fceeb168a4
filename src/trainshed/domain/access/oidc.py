"""OpenID Connect: the settings of a provider, and what groups of people may do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from trainshed.domain import names
from trainshed.domain.iam import ALL_PROJECTS, USER_ROLES, Principal, Role
from trainshed.errors import CannotProceedError, InvalidArgumentError

_TEXTS = {
    "issuer": "",
    "client_id": "",
    "client_secret": "",
    "scopes": "openid profile email groups offline_access",
    "user_claim": "preferred_username",
    "groups_claim": "groups",
}
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGrant:
    """A row of the table of groups: its people have a role in a project, or in all."""

    group: str
    project: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """The table `[oidc]` of config.toml."""

    issuer: str
    client_id: str
    client_secret: str
    scopes: str
    user_claim: str
    groups_claim: str
    grants: tuple[GroupGrant, ...]

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Self | None:
        """Read the table. Returns None if it is empty. Raises `CannotProceedError`, which names the field."""
        if not table:
            return None
        if unknown := set(table) - {*_TEXTS, "groups"}:
            known = ", ".join(sorted((*_TEXTS, "groups")))
            raise CannotProceedError(f"[oidc] in config.toml has {min(unknown)!r}; what it can hold is: {known}.")
        texts = {name: table.get(name, default) for name, default in _TEXTS.items()}
        for name, value in texts.items():
            if not isinstance(value, str) or (not value and name != "client_secret"):
                raise CannotProceedError(f"{name} of [oidc] in config.toml must be a text that is not empty.")
        check_endpoint(texts["issuer"], what="issuer of [oidc] in config.toml")
        grants = tuple(_grant(row) for row in _rows(table.get("groups", [])))
        if not grants:
            raise CannotProceedError(
                "[oidc] in config.toml has no [[oidc.groups]]: nobody could sign in. A row has group, project and role."
            )
        return cls(**texts, grants=grants)

    def principal(self, user: str, groups: Collection[str], *, project: str = "") -> Principal | None:
        """Return what a person may be: in the project, or, without one, where the first rows allow the most.

        Roles in all projects come first. Returns None if no group of the person has a role there.
        """
        rows = [
            row
            for row in self.grants
            if row.group in groups and (not project or row.project in (project, ALL_PROJECTS))
        ]
        if not rows:
            return None
        chosen = ALL_PROJECTS if any(row.project == ALL_PROJECTS for row in rows) else rows[0].project
        role = max((row.role for row in rows if row.project == chosen), key=USER_ROLES.index)
        return Principal(user=user, project=chosen, role=role)


def check_endpoint(url: str, *, what: str) -> None:
    """Raises `CannotProceedError` unless a URL has TLS, or is on this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        return
    raise CannotProceedError(f"The {what} is {url[:200]!r}; it must be a https URL.")


def _rows(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise CannotProceedError("Groups in config.toml are rows that begin with [[oidc.groups]].")
    return value


def _grant(row: Any) -> GroupGrant:
    if not isinstance(row, dict) or set(row) != {"group", "project", "role"}:
        raise CannotProceedError("A row of [[oidc.groups]] in config.toml has group, project and role.")
    if row["role"] not in USER_ROLES:
        raise CannotProceedError(
            f"The role of group {row['group']!r} in config.toml is {row['role']!r}; it must be {', '.join(USER_ROLES)}."
        )
    project = str(row["project"])
    try:
        project = project if project == ALL_PROJECTS else names.project_id(project)
    except InvalidArgumentError as exc:
        raise CannotProceedError(f"The project of group {row['group']!r} in config.toml: {exc}") from exc
    return GroupGrant(group=str(row["group"]), project=project, role=Role(row["role"]))
