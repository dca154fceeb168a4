"""Access of nodes to the files of versions: a URL, and a token that only downloads these files."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol
from urllib.parse import quote

from trainshed.artifacts.manifest import ArtifactAccess
from trainshed.engines.hosts.spec import HostSpec
from trainshed.proxy.node_endpoint import NodeEndpoint

TOKEN_TTL_S = 86_400.0  #: lifetime of a token; a host that starts later gets a new one


class IssueVersionToken(Protocol):
    def __call__(self, project: str, model: str, version: str, *, ttl_s: float) -> str: ...


class ArtifactAccessIssuer:
    """Issues access to the files of versions. `issue` creates a fetch token for one version. Thread-safe."""

    def __init__(
        self, nodes: NodeEndpoint, *, issue: IssueVersionToken, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._nodes = nodes
        self._issue = issue
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens: dict[tuple[str, str, str], tuple[str, float]] = {}  # token and time of issue, by version

    def of(self, spec: HostSpec) -> ArtifactAccess:
        """Return the access for a host that starts now."""
        names = (spec.project, spec.model, spec.version)
        project, model, version = map(quote, names)
        path = f"/trainshed/v1/projects/{project}/models/{model}/versions/{version}/files/"
        return ArtifactAccess(url=self._nodes.tls_url + path, ca=self._nodes.authority, token=self._token(names))

    def _token(self, names: tuple[str, str, str]) -> str:
        with self._lock:
            token, issued_s = self._tokens.get(names, ("", 0.0))
            if not token or self._clock() - issued_s > TOKEN_TTL_S / 2:
                token = self._issue(*names, ttl_s=TOKEN_TTL_S)
                self._tokens[names] = (token, self._clock())
            return token
