"""Policies that people set on single jobs and models: who holds which role, and which permissions a role has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainshed.domain import json_fields as f
from trainshed.domain import names
from trainshed.domain.iam import Principal, Role
from trainshed.errors import InvalidArgumentError

ALL_AUTHENTICATED = "allAuthenticatedUsers"
MAX_MEMBERS = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKind:
    """A kind of resource that has policies: what can be done with it, and who may."""

    noun: str
    roles: Mapping[str, frozenset[str]]  #: what the roles of a policy stand for
    tokens: Mapping[Role, frozenset[str]]  #: what the role of a token stands for

    @property
    def permissions(self) -> frozenset[str]:
        return self.tokens[Role.OWNER]


def _permissions(collection: str, *verbs: str) -> frozenset[str]:
    return frozenset(f"ml.{collection}.{verb}" for verb in verbs)


_JOB_READ = _permissions("jobs", "get", "getIamPolicy", "list")
_JOB_WRITE = _JOB_READ | _permissions("jobs", "cancel", "create", "update")
_JOB_ALL = _JOB_WRITE | {"ml.jobs.setIamPolicy"}

JOBS = ResourceKind(
    noun="job",
    roles={
        "roles/ml.admin": _JOB_ALL,
        "roles/ml.developer": _JOB_READ | {"ml.jobs.create"},
        "roles/ml.jobOwner": _JOB_ALL - {"ml.jobs.create"},
        "roles/ml.viewer": _JOB_READ,
    },
    tokens={Role.VIEWER: _JOB_READ, Role.EDITOR: _JOB_WRITE, Role.OWNER: _JOB_ALL},
)

_PREDICT = frozenset({"ml.models.predict", "ml.versions.predict"})
_MODEL_READ = _permissions("models", "get", "getIamPolicy", "list") | _permissions("versions", "get", "list")
_MODEL_WRITE = (
    _MODEL_READ
    | _PREDICT
    | _permissions("models", "create", "delete", "update")
    | _permissions("versions", "create", "delete", "update")
)
_MODEL_ALL = _MODEL_WRITE | {"ml.models.setIamPolicy"}

MODELS = ResourceKind(
    noun="model",
    roles={
        "roles/ml.admin": _MODEL_ALL,
        "roles/ml.developer": _MODEL_READ | _PREDICT | {"ml.models.create"},
        "roles/ml.modelOwner": _MODEL_ALL - {"ml.models.create"},
        "roles/ml.modelUser": _PREDICT | {"ml.models.get", "ml.versions.get", "ml.versions.list"},
        "roles/ml.viewer": _MODEL_READ,
    },
    # whoever may read may also ask for predictions: that is what the routes let through
    tokens={Role.VIEWER: _MODEL_READ | _PREDICT, Role.EDITOR: _MODEL_WRITE, Role.OWNER: _MODEL_ALL},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Some members hold one role."""

    role: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a resource has. Generation 0: nobody has set one yet."""

    bindings: tuple[Binding, ...] = ()
    generation: int = 0

    def permissions(self, principal: Principal, kind: ResourceKind) -> frozenset[str]:
        """What this principal may do by the role of the token and by this policy together."""
        held = {f"user:{principal.user}", ALL_AUTHENTICATED}
        granted = [kind.roles[binding.role] for binding in self.bindings if held & set(binding.members)]
        return kind.tokens[principal.role].union(*granted)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """A setIamPolicy request, checked."""

    bindings: tuple[Binding, ...] | None  #: None: leave them as they are
    etag: str  #: empty: write over whatever is there


_REQUEST = f.message(
    {
        "policy": f.message(
            {
                "auditConfigs": f.repeated(f.anything),
                "bindings": f.repeated(
                    f.message({"condition": f.anything, "members": f.repeated(f.string), "role": f.string})
                ),
                "etag": f.string,
                "version": f.int32,
            }
        ),
        "updateMask": f.string,
    }
)


def read_change(body: Mapping[str, Any], kind: ResourceKind) -> PolicyChange:
    """The policy of a setIamPolicy request.

    `InvalidArgumentError`, naming the field, if it makes no sense or is not offered.
    """
    given = _REQUEST(body, "")
    if "policy" not in given:
        raise InvalidArgumentError("The policy is missing.", field="policy")
    policy = given["policy"]
    mask = f.mask_paths(given.get("updateMask") or "bindings,etag", field="update_mask")
    for path in mask:
        if path not in ("bindings", "etag", "version"):
            raise InvalidArgumentError(
                f"{path!r} can't be changed. The mask may name bindings, etag and version.", field="update_mask"
            )
    if policy.get("auditConfigs"):
        raise InvalidArgumentError(
            "Audit logging is not offered here. Leave this field out.", field="policy.audit_configs"
        )
    check_version(policy.get("version", 0), field="policy.version")
    bindings = _bindings(policy.get("bindings", []), kind)
    return PolicyChange(bindings=bindings if "bindings" in mask else None, etag=policy.get("etag", ""))


def check_version(version: int, *, field: str) -> None:
    if version not in (0, 1, 3):
        raise InvalidArgumentError(f"A policy has version 0, 1 or 3; {version} is none of them.", field=field)


def _bindings(given: list[dict[str, Any]], kind: ResourceKind) -> tuple[Binding, ...]:
    """Bindings checked, those of the same role made one, each member named once."""
    merged: dict[str, dict[str, None]] = {}
    for number, binding in enumerate(given):
        field = f"policy.bindings[{number}]"
        if binding.get("condition"):
            raise InvalidArgumentError(
                "Conditions are not offered here. Leave this field out.", field=f"{field}.condition"
            )
        role, members = binding.get("role", ""), binding.get("members", [])
        if role not in kind.roles:
            raise InvalidArgumentError(
                f"Role {role!r} can't be held on a {kind.noun}. The roles are: {', '.join(kind.roles)}.",
                field=f"{field}.role",
            )
        if not members:
            raise InvalidArgumentError("A binding needs at least one member.", field=f"{field}.members")
        merged.setdefault(role, {}).update(dict.fromkeys(_member(m, f"{field}.members") for m in members))
    if sum(map(len, merged.values())) > MAX_MEMBERS:
        raise InvalidArgumentError(f"A policy may name {MAX_MEMBERS:,} members at most.", field="policy.bindings")
    return tuple(Binding(role=role, members=tuple(members)) for role, members in merged.items())


def _member(member: str, field: str) -> str:
    kind, _, name = member.partition(":")
    if member == ALL_AUTHENTICATED:
        return member
    if kind != "user":
        raise InvalidArgumentError(
            f"{member[:200]!r} can't be a member here. Members are user:NAME, with the user name of a token, and "
            f"{ALL_AUTHENTICATED}.",
            field=field,
        )
    try:
        return f"user:{names.user_name(name)}"
    except InvalidArgumentError as exc:
        raise InvalidArgumentError(str(exc), field=field) from None


_TEST = f.message({"permissions": f.repeated(f.string)})


def read_permissions(body: Mapping[str, Any], kind: ResourceKind) -> list[str]:
    """The permissions that a testIamPermissions request asks about.

    `InvalidArgumentError` for one that the kind doesn't have.
    """
    asked: list[str] = _TEST(body, "").get("permissions", [])
    for permission in asked:
        if permission not in kind.permissions:
            raise InvalidArgumentError(
                f"{permission[:200]!r} is not a permission on a {kind.noun}. They are: "
                f"{', '.join(sorted(kind.permissions))}.",
                field="permissions",
            )
    return asked
