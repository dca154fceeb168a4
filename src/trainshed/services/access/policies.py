"""IAM policies of jobs and models: get, set and test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from trainshed.domain.iam import Principal
from trainshed.domain.patches import check_etag, etag
from trainshed.domain.policies import Policy, ResourceKind, check_version, read_change, read_permissions
from trainshed.errors import NotFoundError
from trainshed.store.database import retry_on_conflict
from trainshed.store.policies import PolicyStore


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class Policies:
    """The policies of one kind of resource. Thread-safe.

    Raises `NotFoundError` if the resource does not exist.
    """

    def __init__(self, store: PolicyStore, kind: ResourceKind, find: Callable[[str, str], _Named]) -> None:
        """`find` returns the resource with an id in a project, or raises `NotFoundError`."""
        self._store = store
        self._kind = kind
        self._find = find

    def get(self, project: str, resource_id: str, *, version: int = 0) -> dict[str, Any]:
        """Return the policy of a resource. An unset policy is empty and has an etag too."""
        check_version(version, field="options.requested_policy_version")
        return policy_body(self._store.get(self._find(project, resource_id).name))

    def set(self, project: str, resource_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace a policy. Raises `AbortedError` if the body has an etag that is not current."""
        change = read_change(body, self._kind)
        resource = self._find(project, resource_id).name

        def attempt() -> Policy:
            current = self._store.get(resource)
            if change.etag:
                check_etag(change.etag, current.generation, what="the policy")
            bindings = current.bindings if change.bindings is None else change.bindings
            return self._store.replace(resource, bindings, generation=current.generation)

        return policy_body(retry_on_conflict(attempt))

    def test(self, project: str, resource_id: str, principal: Principal, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of the requested permissions that the caller has.

        Returns none if the resource does not exist.
        """
        requested = read_permissions(body, self._kind)
        try:
            policy = self._store.get(self._find(project, resource_id).name)
        except NotFoundError:
            return {}
        permissions = policy.permissions(principal, self._kind)
        granted = [permission for permission in dict.fromkeys(requested) if permission in permissions]
        return {"permissions": granted} if granted else {}


def policy_body(policy: Policy) -> dict[str, Any]:
    """Return a policy as a resource of the API."""
    body: dict[str, Any] = {"version": 1, "etag": etag(policy.generation)}
    if policy.bindings:
        body["bindings"] = [{"role": binding.role, "members": list(binding.members)} for binding in policy.bindings]
    return body
