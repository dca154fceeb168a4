"""IAM policies on jobs and models: bindings of roles to members, and the permissions of each role."""

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
    """A kind of resource that has policies: its permissions, and the roles that grant them."""

    noun: str
    roles: Mapping[str, frozenset[str]]  #: permissions by role of a policy
    tokens: Mapping[Role, frozenset[str]]  #: permissions by role of a token

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
    # viewers may request predictions, as the routes allow
    tokens={Role.VIEWER: _MODEL_READ | _PREDICT, Role.EDITOR: _MODEL_WRITE, Role.OWNER: _MODEL_ALL},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The members that hold one role."""

    role: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The policy of a resource. Generation 0: never set."""

    bindings: tuple[Binding, ...] = ()
    generation: int = 0

    def permissions(self, principal: Principal, kind: ResourceKind) -> frozenset[str]:
        """The permissions of a principal, from the token's role and this policy together."""
        identities = {f"user:{principal.user}", ALL_AUTHENTICATED}
        role_permissions = [kind.roles[binding.role] for binding in self.bindings if identities & set(binding.members)]
        return kind.tokens[principal.role].union(*role_permissions)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """A checked setIamPolicy request."""

    bindings: tuple[Binding, ...] | None  #: None: unchanged
    etag: str  #: empty: overwrite unconditionally


SET_POLICY_REQUEST = f.message(
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
    """Read the policy of a setIamPolicy request.

    Raises `InvalidArgumentError`, which names the field, if it is invalid or not offered.
    """
    request = SET_POLICY_REQUEST(body, "")
    if "policy" not in request:
        raise InvalidArgumentError("The policy is missing.", field="policy")
    policy = request["policy"]
    mask = f.mask_paths(request.get("updateMask") or "bindings,etag", field="update_mask")
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


def _bindings(raw_bindings: list[dict[str, Any]], kind: ResourceKind) -> tuple[Binding, ...]:
    """Check the bindings and merge those of the same role. Members are unique."""
    members_by_role: dict[str, dict[str, None]] = {}
    for number, binding in enumerate(raw_bindings):
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
        members_by_role.setdefault(role, {}).update(dict.fromkeys(_member(m, f"{field}.members") for m in members))
    if sum(map(len, members_by_role.values())) > MAX_MEMBERS:
        raise InvalidArgumentError(f"A policy may name {MAX_MEMBERS:,} members at most.", field="policy.bindings")
    return tuple(Binding(role=role, members=tuple(members)) for role, members in members_by_role.items())


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


TEST_PERMISSIONS_REQUEST = f.message({"permissions": f.repeated(f.string)})


def read_permissions(body: Mapping[str, Any], kind: ResourceKind) -> list[str]:
    """The permissions of a testIamPermissions request.

    Raises `InvalidArgumentError` for one that the kind does not have.
    """
    permissions: list[str] = TEST_PERMISSIONS_REQUEST(body, "").get("permissions", [])
    for permission in permissions:
        if permission not in kind.permissions:
            raise InvalidArgumentError(
                f"{permission[:200]!r} is not a permission on a {kind.noun}. They are: "
                f"{', '.join(sorted(kind.permissions))}.",
                field="permissions",
            )
    return permissions
