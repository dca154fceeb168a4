"""Policies on jobs and models: read, set, and asked about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from trainshed.domain.etags import check_etag, etag
from trainshed.domain.iam import Principal
from trainshed.domain.policies import Policy, ResourceKind, check_version, read_change, read_permissions
from trainshed.errors import NotFoundError
from trainshed.store.conflicts import retry_on_conflict
from trainshed.store.policies import PolicyStore


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class Policies:
    """Those of one kind of resource. Threads may share it. What doesn't exist has no policy: `NotFoundError`."""

    def __init__(self, store: PolicyStore, kind: ResourceKind, find: Callable[[str, str], _Named]) -> None:
        """`find` gives the resource of a project and an id, or raises `NotFoundError`."""
        self._store = store
        self._kind = kind
        self._find = find

    def get(self, project: str, resource_id: str, *, version: int = 0) -> dict[str, Any]:
        """The policy of a resource. One that nobody has set is empty, and has an etag too."""
        check_version(version, field="options.requested_policy_version")
        return policy_body(self._store.get(self._find(project, resource_id).name))

    def set(self, project: str, resource_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Write a policy over the one there is. With an etag: `AbortedError` unless it is the current one."""
        change = read_change(body, self._kind)
        resource = self._find(project, resource_id).name

        def once() -> Policy:
            found = self._store.get(resource)
            if change.etag:
                check_etag(change.etag, found.generation, what="the policy")
            bindings = found.bindings if change.bindings is None else change.bindings
            return self._store.replace(resource, bindings, generation=found.generation)

        return policy_body(retry_on_conflict(once))

    def test(self, project: str, resource_id: str, principal: Principal, body: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the permissions asked about that the caller has. None at all where there is nothing."""
        asked = read_permissions(body, self._kind)
        try:
            policy = self._store.get(self._find(project, resource_id).name)
        except NotFoundError:
            return {}
        held = policy.permissions(principal, self._kind)
        granted = [permission for permission in dict.fromkeys(asked) if permission in held]
        return {"permissions": granted} if granted else {}


def policy_body(policy: Policy) -> dict[str, Any]:
    """A policy in the API's own form."""
    body: dict[str, Any] = {"version": 1, "etag": etag(policy.generation)}
    if policy.bindings:
        body["bindings"] = [{"role": binding.role, "members": list(binding.members)} for binding in policy.bindings]
    return body
