"""Containers of hosts: builds their specs, chooses ports, and removes all of them."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from trainshed.config import Home
from trainshed.domain.models.version_container import DEFAULT_PORT, resolve_command
from trainshed.engines.hosts.spec import ResolvedContainer
from trainshed.errors import FailedPreconditionError
from trainshed.node.containers import images
from trainshed.node.containers import tool as container_tool
from trainshed.node.containers.images import ImageError
from trainshed.node.containers.tool import ContainerSpec, ContainerTool, NoContainerToolError
from trainshed.node.process.ports import free_ports

LOG = logging.getLogger("trainshed.engines.local.hosts")

LABEL = "trainshed.hosts"
BRIDGE, HOST = "bridge", "host"
_WAIT_SHARE = 0.9  #: of the load timeout: later, the container's own error is reported
_MARKER = ".containers"  #: in the hosts' folder; says that containers may exist. No project can have this name


class HostContainerInputs(Protocol):
    """The part of a host's spec that containers need."""

    @property
    def project(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def model_dir(self) -> Path: ...
    @property
    def threads(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerOptions:
    """Settings of containers."""

    network: str = BRIDGE  #: or HOST
    read_only: bool = False
    load_timeout_s: float = 300.0
    predict_timeout_s: float = 60.0


class HostContainers:
    """All containers of hosts of one state folder. Thread-safe."""

    def __init__(
        self,
        home: Home,
        options: ContainerOptions | None = None,
        *,
        free_port: Callable[[], int] = lambda: free_ports(1)[0],
    ) -> None:
        self._hosts = home.hosts
        self._options = options or ContainerOptions()
        self._free_port = free_port
        self._key = hashlib.sha256(str(home.hosts).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def order(self, spec: HostContainerInputs, resolved: ResolvedContainer) -> dict[str, Any]:
        """The container part of a host's spec, with a new container name."""
        tool = ContainerTool.of(dict(resolved.tool))
        self._remember(tool)
        name = f"trainshed-host-{secrets.token_hex(6)}"
        container = render(spec, resolved, self._options, name=name, port=self._free_port())
        container_spec = container.pop("box")
        container_spec.labels[LABEL] = self._key
        return {
            **container,
            "run": container_tool.run_command(tool, container_spec),
            "env": container_tool.environment(container_spec),
            "end": container_tool.remove_command(tool, [name]),
        }

    def end(self, container: Mapping[str, Any]) -> None:
        """Remove the container of a host that has exited."""
        process = container_tool.run_tool(list(container["end"]))
        if process.returncode != 0 and "no such container" not in process.stderr.lower():
            LOG.warning(
                "container.left image=%s reason=%s", container["image"], container_tool.last_line(process.stderr)
            )

    def sweep(self) -> None:
        """Remove containers that an earlier server left because it was killed together with its hosts."""
        marker = self._hosts / _MARKER
        try:
            tool = ContainerTool.of(orjson.loads(marker.read_bytes()))
        except (FileNotFoundError, orjson.JSONDecodeError, KeyError, TypeError):
            return
        reason = container_tool.remove_labelled(tool, f"{LABEL}={self._key}")
        if reason is not None:
            LOG.warning("container.left reason=%s", reason)
            return
        marker.unlink(missing_ok=True)

    def _remember(self, tool: ContainerTool) -> None:
        self._hosts.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._hosts / _MARKER).write_bytes(orjson.dumps(tool.words()))


def render(
    spec: HostContainerInputs, resolved: ResolvedContainer, options: ContainerOptions, *, name: str, port: int
) -> dict[str, Any]:
    """The container part of a host's spec, with the `ContainerSpec` as `box`. `port` is a free loopback port.

    On a bridge network the container listens on its version's port, which is published as `port`. On the host network
    it listens on `port`, unless its version names another one.
    """
    bridged = options.network == BRIDGE
    container_port = resolved.container.port or (DEFAULT_PORT if bridged else port)
    env, command, args = resolve_command(resolved.container, {**resolved.env, "AIP_HTTP_PORT": str(container_port)})
    mounts = [{"source": str(spec.model_dir), "target": resolved.folder, "read_only": True}] if resolved.folder else []
    container_spec = ContainerSpec(
        name,
        resolved.image,
        command=command,
        args=args,
        env=env,
        labels={"trainshed.version": f"{spec.project}/{spec.model}/{spec.version}"},
        mounts=mounts,
        cpus=spec.threads,
        memory_bytes=spec.memory_bytes,
        read_only=options.read_only,
        ports=[(port, container_port)] if bridged else [],
    )
    return {
        "image": f"{resolved.container.image} ({resolved.image.removeprefix('sha256:')[:12]})",
        "port": port if bridged else container_port,
        "predict": resolved.container.predict,
        "health": resolved.container.health,
        "wait_s": options.load_timeout_s * _WAIT_SHARE,
        "timeout_s": options.predict_timeout_s,
        "box": container_spec,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedImage:
    """An image that runs on this machine."""

    tool: Mapping[str, Any]  #: `ContainerTool.words` of the tool that has it
    id: str


def resolve_image(image: str, *, tool: str, pull: bool, report: Callable[[str], None]) -> ResolvedImage:
    """Resolve an image by its name or id. Blocks while it is pulled, if it may be; `report` is called with progress,
    and its errors propagate. Raises `FailedPreconditionError` if it can't be pulled or does not run here."""
    try:
        found_tool, ids = images.ensure_images(container_tool.find(tool), {image: pull}, report)
    except (NoContainerToolError, ImageError) as exc:
        raise FailedPreconditionError(str(exc)) from exc
    return ResolvedImage(tool=found_tool.words(), id=ids[image])
