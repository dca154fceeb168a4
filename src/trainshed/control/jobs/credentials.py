"""What lets a replica's own code reach this server under Google's names: variables, a token, and files with it.

On this machine the files are written into the attempt's folder. For a replica on another machine they travel as a kit,
in which `@node@`, `@relay@` and `@host:REPLICA@` stand for what only that machine knows.
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

FOLDER = "credentials"  #: in the attempt's own
INSIDE = Path("/etc/trainshed")  #: where a container sees it
INSIDE_STATE = Path("/tmp/gsutil")  # noqa: S108 - in the container
_LONGER_S = 86_400.0  #: that a token lives beyond the job's time limit, at most; the end of the job ends it anyway
_HOST = re.compile(r"@host:[a-z0-9-]+@")


class IssueJobToken(Protocol):
    def __call__(self, project: str, job: str, *, ttl_s: float) -> str: ...


class LocalCredentials:
    """`issue` makes a token for a job, given its project, its name and how long it may live at most."""

    def __init__(self, reach: ServerEndpoints, *, issue: IssueJobToken) -> None:
        self._reach = reach
        self._issue = issue

    def inject(self, launch: AttemptSpec) -> AttemptSpec:
        """The same launch with `gs://` in it. Writes the token into the attempt's folder; the launch has only paths.

        What a launch says already is kept.
        """
        token = self._issue(launch.project, launch.job, ttl_s=_ttl_s(launch))
        if launch.containers is not None:
            return self._equip_containers(launch, launch.containers, token)
        folder = launch.folder / FOLDER
        client_config.write_files(
            folder, client_config.config_files(self._reach, project=launch.project, folder=folder, token=token)
        )
        return replace(launch, env={**environment(self._reach, launch), **launch.env})

    def _equip_containers(self, launch: AttemptSpec, containers: ContainerSettings, token: str) -> AttemptSpec:
        """The same files, at the place where containers see them, for whichever user an image has."""
        reach = replace(self._reach, bundle=INSIDE / self._reach.bundle.name)
        files = client_config.config_files(
            reach, project=launch.project, folder=INSIDE, token=token, state=INSIDE_STATE
        )
        bundle = {reach.bundle.name: self._reach.bundle.read_text()}
        client_config.write_files(launch.folder / FOLDER, {**files, **bundle}, for_all=True)
        mount = Mount(source=launch.folder / FOLDER, target=INSIDE, read_only=True)
        return replace(
            launch,
            env={**environment(reach, launch, INSIDE), **launch.env},
            containers=replace(containers, mounts=(*containers.mounts, mount)),
        )


def environment(reach: ServerEndpoints, launch: AttemptSpec, folder: Path | None = None) -> dict[str, str]:
    """The variables of every replica. None of them is secret. `folder` is where it sees the files, if not here."""
    folder = folder or launch.folder / FOLDER
    made = client_config.client_environment(reach, project=launch.project, folder=folder, hosts=_hosts(launch))
    return made | {"TRAINSHED_HOME": str(folder)}  # where the command line looks for its token


def _hosts(launch: AttemptSpec) -> Iterable[str]:
    for replica in launch.replicas:
        cluster = json.loads(replica.env.get("TF_CONFIG", "{}")).get("cluster", {})
        for addresses in cluster.values():
            yield from (address.rpartition(":")[0] for address in addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAttempt:
    """A launch for other machines, and what they need to have of this one."""

    launch: AttemptSpec  #: without packages: those are fetched there
    packages: tuple[Mapping[str, Any], ...]
    kit: Mapping[str, Any] = field(repr=False)  #: holds tokens; goes into no log and no command line


class RemoteCredentials:
    """As `LocalCredentials`, for replicas on other machines.

    `issue_fetch_token` makes a token that fetches packages alone.
    """

    def __init__(self, reach: NodeEndpoint, *, issue: IssueJobToken, issue_fetch_token: IssueJobToken) -> None:
        self._nodes = reach
        self._issue = issue
        self._issue_fetch_token = issue_fetch_token

    def inject(self, launch: AttemptSpec) -> RemoteAttempt:
        """Keeps a copy of each package in the attempt's folder. What a launch says already is kept."""
        packages = tuple(self._parcel(launch, package) for package in launch.packages)
        kit = {
            "files": self._files(launch),
            "relay": self._nodes.relay(),
            "ca": self._nodes.authority,
            "token": self._issue_fetch_token(launch.project, launch.job, ttl_s=_ttl_s(launch)),
        }
        env = {**self._environment(launch), **launch.env}
        told = replace(launch, env=env, packages=(), containers=self._showing(launch.containers))
        return RemoteAttempt(launch=told, packages=packages, kit=kit)

    def _showing(self, containers: ContainerSettings | None) -> ContainerSettings | None:
        """Containers that see the files of the kit."""
        if containers is None or not self._nodes.serves_gs:
            return containers
        mount = Mount(source=node_endpoint.FOLDER, target=INSIDE, read_only=True)
        return replace(containers, mounts=(*containers.mounts, mount))

    def _parcel(self, launch: AttemptSpec, package: Package) -> dict[str, Any]:
        kept = staging.stage_package(launch.folder, package)
        path = f"/trainshed/v1/projects/{quote(launch.project)}/jobs/{quote(launch.job)}/packages/{package.sha256}"
        return {
            "uri": package.uri,
            "sha256": package.sha256,
            "size": kept.stat().st_size,
            "url": self._nodes.tls_url + path,
        }

    def _files(self, launch: AttemptSpec) -> dict[str, str]:
        if not self._nodes.serves_gs:
            return {}
        token = self._issue(launch.project, launch.job, ttl_s=_ttl_s(launch))
        reach, folder = self._seen(launch)
        state = INSIDE_STATE if launch.containers else None
        made = client_config.config_files(reach, project=launch.project, folder=folder, token=token, state=state)
        return made | {"token-for": self._nodes.tls_url}  # or the command line would not send it to another machine

    def _environment(self, launch: AttemptSpec) -> dict[str, str]:
        """None of it is secret."""
        if not self._nodes.serves_gs:
            return {}
        gang = (host for replica in launch.replicas for value in replica.env.values() for host in _HOST.findall(value))
        hosts = (urlsplit(self._nodes.tls_url).hostname or "", *gang)
        reach, folder = self._seen(launch)
        made = client_config.client_environment(reach, project=launch.project, folder=folder, hosts=hosts)
        return made | {"TRAINSHED_HOME": str(folder)}

    def _seen(self, launch: AttemptSpec) -> tuple[ServerEndpoints, Path]:
        """The way to this server as a replica sees it, and where it sees the files of the kit."""
        reach = self._nodes.reach
        if not launch.containers:
            return reach, node_endpoint.FOLDER
        return replace(reach, bundle=INSIDE / reach.bundle.name), INSIDE


def _ttl_s(launch: AttemptSpec) -> float:
    """A replica may be started, and need its packages, at any time while the job goes on."""
    return launch.max_running_s + _LONGER_S
