"""Credentials for replicas: variables, a token and files that let trainer code reach this server under Google's names.

On this machine the files are written into the attempt's folder. A remote replica gets them as a credentials bundle. In
it the placeholders `@node@`, `@sidecar_proxy@` and `@host:REPLICA@` stand for values that only the node knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from trainshed.artifacts import staging
from trainshed.artifacts.staging import Package
from trainshed.engines.base import AttemptSpec, ContainerSettings, Mount
from trainshed.proxy import client_config, node_endpoint
from trainshed.proxy.client_config import ServerEndpoints
from trainshed.proxy.node_endpoint import NodeEndpoint

CREDENTIALS_FOLDER = "credentials"  #: in the attempt's folder
CONTAINER_FOLDER = Path("/etc/trainshed")  #: where a container sees the credentials
CONTAINER_STATE_FOLDER = Path("/tmp/gsutil")  # noqa: S108 - in the container
_TOKEN_GRACE_S = 86_400.0  #: added to the job's time limit; the end of the job revokes the token anyway
_HOST_PLACEHOLDER = re.compile(r"@host:[a-z0-9-]+@")


class IssueJobToken(Protocol):
    def __call__(self, project: str, job: str, *, ttl_s: float) -> str: ...


class LocalCredentials:
    """Credentials for replicas on this machine. `issue` creates a token for a job, with a maximum lifetime."""

    def __init__(self, endpoints: ServerEndpoints, *, issue: IssueJobToken) -> None:
        self._endpoints = endpoints
        self._issue = issue

    def inject(self, spec: AttemptSpec) -> AttemptSpec:
        """Return the spec with the credentials' variables. Writes the token into the attempt's folder.

        The spec itself holds only paths. Variables that it sets already are kept.
        """
        token = self._issue(spec.project, spec.job, ttl_s=_ttl_s(spec))
        if spec.containers is not None:
            return self._inject_containers(spec, spec.containers, token)
        folder = spec.folder / CREDENTIALS_FOLDER
        client_config.write_files(
            folder, client_config.config_files(self._endpoints, project=spec.project, folder=folder, token=token)
        )
        return replace(
            spec,
            env={**environment(self._endpoints, spec), **spec.env},
            readable=(*spec.readable, self._endpoints.bundle),
            writable=(*spec.writable, folder),  # gsutil keeps its state there
        )

    def _inject_containers(self, spec: AttemptSpec, containers: ContainerSettings, token: str) -> AttemptSpec:
        """Like `inject`, with the paths that containers see, and readable by the user of any image."""
        endpoints = replace(self._endpoints, bundle=CONTAINER_FOLDER / self._endpoints.bundle.name)
        files = client_config.config_files(
            endpoints, project=spec.project, folder=CONTAINER_FOLDER, token=token, state=CONTAINER_STATE_FOLDER
        )
        bundle = {endpoints.bundle.name: self._endpoints.bundle.read_text()}
        client_config.write_files(spec.folder / CREDENTIALS_FOLDER, {**files, **bundle}, for_all=True)
        mount = Mount(source=spec.folder / CREDENTIALS_FOLDER, target=CONTAINER_FOLDER, read_only=True)
        return replace(
            spec,
            env={**environment(endpoints, spec, CONTAINER_FOLDER), **spec.env},
            containers=replace(containers, mounts=(*containers.mounts, mount)),
        )


def environment(endpoints: ServerEndpoints, spec: AttemptSpec, folder: Path | None = None) -> dict[str, str]:
    """Return the variables of every replica. None is secret. `folder` is where the replica sees the files."""
    folder = folder or spec.folder / CREDENTIALS_FOLDER
    variables = client_config.client_environment(endpoints, project=spec.project, folder=folder, hosts=_hosts(spec))
    return variables | {"TRAINSHED_HOME": str(folder)}  # where Trainshed's CLI looks for its token


def _hosts(spec: AttemptSpec) -> Iterable[str]:
    for replica in spec.replicas:
        cluster = json.loads(replica.env.get("TF_CONFIG", "{}")).get("cluster", {})
        for addresses in cluster.values():
            yield from (address.rpartition(":")[0] for address in addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAttempt:
    """An attempt spec for remote nodes, with what they fetch from this server."""

    spec: AttemptSpec  #: without packages: nodes fetch those
    packages: tuple[Mapping[str, Any], ...]
    credentials: Mapping[str, Any] = field(repr=False)  #: the bundle; its tokens must not reach logs or command lines


class RemoteCredentials:
    """Credentials for remote replicas. `issue_fetch_token` creates a token that only downloads packages."""

    def __init__(self, nodes: NodeEndpoint, *, issue: IssueJobToken, issue_fetch_token: IssueJobToken) -> None:
        self._nodes = nodes
        self._issue = issue
        self._issue_fetch_token = issue_fetch_token

    def inject(self, spec: AttemptSpec) -> RemoteAttempt:
        """Build the credentials bundle and stage each package. Variables that the spec sets already are kept."""
        packages = tuple(self._stage(spec, package) for package in spec.packages)
        bundle = {
            "files": self._files(spec),
            "sidecar_proxy": self._nodes.sidecar_settings(),
            "ca": self._nodes.authority,
            "token": self._issue_fetch_token(spec.project, spec.job, ttl_s=_ttl_s(spec)),
        }
        env = {**self._environment(spec), **spec.env}
        remote_spec = replace(spec, env=env, packages=(), containers=self._with_mount(spec.containers))
        return RemoteAttempt(spec=remote_spec, packages=packages, credentials=bundle)

    def _with_mount(self, containers: ContainerSettings | None) -> ContainerSettings | None:
        """Mount the files of the bundle into containers."""
        if containers is None or not self._nodes.serves_gs:
            return containers
        mount = Mount(source=node_endpoint.CREDENTIALS_FOLDER, target=CONTAINER_FOLDER, read_only=True)
        return replace(containers, mounts=(*containers.mounts, mount))

    def _stage(self, spec: AttemptSpec, package: Package) -> dict[str, Any]:
        staged = staging.stage_package(spec.folder, package)
        path = f"/trainshed/v1/projects/{quote(spec.project)}/jobs/{quote(spec.job)}/packages/{package.sha256}"
        return {
            "uri": package.uri,
            "sha256": package.sha256,
            "size": staged.stat().st_size,
            "url": self._nodes.tls_url + path,
        }

    def _files(self, spec: AttemptSpec) -> dict[str, str]:
        if not self._nodes.serves_gs:
            return {}
        token = self._issue(spec.project, spec.job, ttl_s=_ttl_s(spec))
        endpoints, folder = self._replica_view(spec)
        state = CONTAINER_STATE_FOLDER if spec.containers else None
        files = client_config.config_files(endpoints, project=spec.project, folder=folder, token=token, state=state)
        return files | {"token-for": self._nodes.tls_url}  # the CLI sends the token only to this URL

    def _environment(self, spec: AttemptSpec) -> dict[str, str]:
        """Return the variables of every replica. None is secret."""
        if not self._nodes.serves_gs:
            return {}
        gang = (
            host
            for replica in spec.replicas
            for value in replica.env.values()
            for host in _HOST_PLACEHOLDER.findall(value)
        )
        hosts = (urlsplit(self._nodes.tls_url).hostname or "", *gang)
        endpoints, folder = self._replica_view(spec)
        variables = client_config.client_environment(endpoints, project=spec.project, folder=folder, hosts=hosts)
        return variables | {"TRAINSHED_HOME": str(folder)}

    def _replica_view(self, spec: AttemptSpec) -> tuple[ServerEndpoints, Path]:
        """Return the endpoints and the folder of the bundle's files, as a replica sees them."""
        endpoints = self._nodes.endpoints
        if not spec.containers:
            return endpoints, node_endpoint.CREDENTIALS_FOLDER
        return replace(endpoints, bundle=CONTAINER_FOLDER / endpoints.bundle.name), CONTAINER_FOLDER


def _ttl_s(spec: AttemptSpec) -> float:
    """Return the lifetime of a token: a replica may start, and need its packages, at any time while the job runs."""
    return spec.max_running_s + _TOKEN_GRACE_S
