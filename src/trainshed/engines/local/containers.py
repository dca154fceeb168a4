"""The containers below hosts: what is run, on which port, and that nothing of it is left."""

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

LOG = logging.getLogger("trainshed.engines.local.hosts")

LABEL = "trainshed.hosts"
BRIDGE, HOST = "bridge", "host"
_WAIT_SHARE = 0.9  #: of the time that a host may take to load: then the container's own words are told
_MARK = ".containers"  #: in the hosts' folder, no project can have this name: there may be containers of ours


class HostContainerInputs(Protocol):
    """What of a host's spec matters here."""

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
    """What the settings say."""

    network: str = BRIDGE  #: or HOST
    read_only: bool = False
    load_timeout_s: float = 300.0
    predict_timeout_s: float = 60.0


class HostContainers:
    """All containers of hosts of one state folder. Safe to use from many threads."""

    def __init__(
        self, home: Home, surroundings: ContainerOptions | None = None, *, free_port: Callable[[], int]
    ) -> None:
        self._hosts = home.hosts
        self._surroundings = surroundings or ContainerOptions()
        self._free_port = free_port
        self._key = hashlib.sha256(str(home.hosts).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def order(self, spec: HostContainerInputs, wanted: ResolvedContainer) -> dict[str, Any]:
        """What a host is told of its container, and a new name for that."""
        tool = ContainerTool.of(dict(wanted.tool))
        self._remember(tool)
        name = f"trainshed-host-{secrets.token_hex(6)}"
        order = render(spec, wanted, self._surroundings, name=name, port=self._free_port())
        box = order.pop("box")
        box.labels[LABEL] = self._key
        return {
            **order,
            "run": container_tool.run_command(tool, box),
            "env": container_tool.environment(box),
            "end": container_tool.remove_command(tool, [name]),
        }

    def end(self, order: Mapping[str, Any]) -> None:
        """See to it that nothing of a container is left, once its host has ended."""
        done = container_tool.run_tool(list(order["end"]))
        if done.returncode != 0 and "no such container" not in done.stderr.lower():
            LOG.warning("container.left image=%s reason=%s", order["image"], container_tool.last_line(done.stderr))

    def sweep(self) -> None:
        """End and remove what an earlier server, killed together with its hosts, left."""
        mark = self._hosts / _MARK
        try:
            tool = ContainerTool.of(orjson.loads(mark.read_bytes()))
        except (FileNotFoundError, orjson.JSONDecodeError, KeyError, TypeError):
            return
        left = container_tool.remove_labelled(tool, f"{LABEL}={self._key}")
        if left is not None:
            LOG.warning("container.left reason=%s", left)
            return
        mark.unlink(missing_ok=True)

    def _remember(self, tool: ContainerTool) -> None:
        self._hosts.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._hosts / _MARK).write_bytes(orjson.dumps(tool.words()))


def render(
    spec: HostContainerInputs, wanted: ResolvedContainer, surroundings: ContainerOptions, *, name: str, port: int
) -> dict[str, Any]:
    """The order of a host, with the container to run as `box`. `port` is a free one of loopback.

    On a network of its own the container listens where its version says, and that is `port` outside. On the machine's
    network it listens on `port`, unless its version names another one.
    """
    own = surroundings.network == BRIDGE
    inside = wanted.container.port or (DEFAULT_PORT if own else port)
    env, command, args = resolve_command(wanted.container, {**wanted.env, "AIP_HTTP_PORT": str(inside)})
    mounts = [{"source": str(spec.model_dir), "target": wanted.folder, "read_only": True}] if wanted.folder else []
    box = ContainerSpec(
        name,
        wanted.image,
        command=command,
        args=args,
        env=env,
        labels={"trainshed.version": f"{spec.project}/{spec.model}/{spec.version}"},
        mounts=mounts,
        cpus=spec.threads,
        memory_bytes=spec.memory_bytes,
        read_only=surroundings.read_only,
        ports=[(port, inside)] if own else [],
    )
    return {
        "image": f"{wanted.container.image} ({wanted.image.removeprefix('sha256:')[:12]})",
        "port": port if own else inside,
        "predict": wanted.container.predict,
        "health": wanted.container.health,
        "wait_s": surroundings.load_timeout_s * _WAIT_SHARE,
        "timeout_s": surroundings.predict_timeout_s,
        "box": box,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedImage:
    """An image that runs here."""

    tool: Mapping[str, Any]  #: `ContainerTool.words` of what has it
    id: str


def resolve_image(image: str, *, tool: str, tell: Callable[[str], None]) -> ResolvedImage:
    """An image by its name or its id. Blocks while it is pulled; `tell` is told of that, and what it raises goes
    through. `FailedPreconditionError` if it can't be had, or does not run here."""
    try:
        chosen, ids = images.ensure_images(container_tool.find(tool), [image], tell)
    except (NoContainerToolError, ImageError) as exc:
        raise FailedPreconditionError(str(exc)) from exc
    return ResolvedImage(tool=chosen.words(), id=ids[image])
