"""Networks: what user code of a project reaches. Processes that start from then on have a change."""

from __future__ import annotations

from typing import Any

from trainshed.domain.access.networks import MACHINE, check_network
from trainshed.store.access.networks import NetworkStore


class ProjectNetworks:
    """The networks of all projects. Thread-safe."""

    def __init__(self, store: NetworkStore, *, default: str) -> None:
        """`default` is the setting `network`."""
        self._store = store
        self._default = default

    def of(self, project: str) -> str:
        """The network of a project."""
        return self._default if self._default == MACHINE else self._store.find(project) or self._default

    def body(self, project: str) -> dict[str, Any]:
        """Return the network of a project, and whether it is the server's."""
        return {"network": self.of(project), "default": self._store.find(project) is None}

    def set(self, project: str, network: object) -> dict[str, Any]:
        """Set the network of a project."""
        self._store.put(project, check_network(network))
        return self.body(project)

    def reset(self, project: str) -> dict[str, Any]:
        """Let a project have the server's network. Idempotent."""
        self._store.delete(project)
        return self.body(project)
