"""The bridge's connection to the Ray cluster: its head, its nodes, placement groups and actors."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ray

from .cluster_api import ClusterApi

Bundles = Mapping[str, Mapping[str, float]]

POLL_INTERVAL_S = 1.0  #: between two requests to the head
HEAD_FRESH_S = 6.0  #: a head that responded within this time is reachable
FREE_INTERVAL_S = 3.0  #: between two requests for free resources, while a client wants them
CORDON_S = 120.0  #: by then the head knows that a node is lost, or the node is back
_API_TIMEOUT_S = 20.0  #: for the `ClusterApi` actor to respond
_END_TIMEOUT_S = 10.0  #: for an agent to kill all descendants
_MAX_ATTEMPTS = 3  #: to end the actors of a gang, before the failure is reported
_CLIENT_SCHEME = "ray://"
_CLIENT_PORT = 10001
_HEAD_RESOURCES = {"node:__internal_head__": 0.001}


class ClusterUnavailableError(Exception):
    """The cluster does not respond. The message has the reason, if known."""


class ClusterConnection:
    """One connection to Ray, made once. When it breaks permanently, the process must be restarted."""

    def __init__(self, address: str, namespace: str, answered: Path) -> None:
        """`answered` is a file with the time of the head's last response, also to an earlier process."""
        self.address = address
        self.namespace = namespace
        self.why = ""  #: Ray's error if the cluster is unreachable
        self._answered_file = answered
        self._answered_s = self._viewed_s = self._free_at = 0.0  # monotonic
        self._nodes: list[dict[str, Any]] = []
        self._free: dict[str, dict[str, float]] = {}
        self._cordoned_s: dict[str, float] = {}  # until when, by node id
        self._api: Any = None  # an actor if this is a Ray client, else an object
        self._client = False
        self._end_locks: dict[str, threading.Lock] = {}  # of actors that are being ended
        self._connected = threading.Event()
        self._lock = threading.Lock()

    # -- the connection

    def connect(self) -> None:
        """Connect. Propagates any error of Ray."""
        address = _connect_address(self.address)
        ray.init(address, namespace=self.namespace, log_to_driver=False, logging_level="warning")
        self._client = address.startswith(_CLIENT_SCHEME)
        if self._client:
            self._api = (
                ray.remote(ClusterApi).options(num_cpus=0, resources=_HEAD_RESOURCES, max_concurrency=16).remote()
            )
        else:
            self._api = ClusterApi()
        self._update_nodes()
        self.why = ""
        self._connected.set()

    def watch(self) -> None:
        """Poll the head. Returns when the connection is broken permanently."""
        while ray.is_initialized():
            time.sleep(POLL_INTERVAL_S)
            try:
                self._update_nodes()
                self._update_free()
            except (ConnectionError, ray.exceptions.ActorDiedError) as exc:
                sys.stderr.write(f"The connection is broken: {first_line(exc)}\n")
                return
            except Exception as exc:  # noqa: BLE001 - any error of Ray; the next poll or the timeout decides
                self.why = first_line(exc)
                sys.stderr.write(f"The head did not answer: {self.why}\n")

    def _call_api(self, method: str, *arguments: Any) -> Any:
        call = getattr(self._api, method)
        return ray.get(call.remote(*arguments), timeout=_API_TIMEOUT_S) if self._client else call(*arguments)

    def _update_nodes(self) -> None:
        self._nodes = self._call_api("nodes")
        self._answered_s = time.monotonic()
        self._answered_file.write_text(str(int(time.time() * 1_000_000)))

    def _update_free(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._free_at and now_s < self._viewed_s + 2 * FREE_INTERVAL_S:
            self._free_at = now_s + FREE_INTERVAL_S
            self._free = self._call_api("free")

    def answers(self) -> bool:
        """Whether the head has responded recently."""
        return self._connected.is_set() and time.monotonic() - self._answered_s < HEAD_FRESH_S

    def check(self) -> None:
        """Raises `ClusterUnavailableError` if the head has not responded recently."""
        if not self.answers():
            raise ClusterUnavailableError(f"The Ray cluster at {self.address} does not answer. {self.why}".rstrip())

    def wait(self) -> None:
        """Blocks until there is a connection."""
        self._connected.wait()

    def view(self) -> dict[str, Any]:
        """The cluster status, as JSON for the server."""
        self._viewed_s = time.monotonic()
        reachable = self.answers()
        return {
            "reachable": reachable,
            "since": self._since_us(),
            "address": self.address,
            "why": self.why,
            "nodes": [{**node, "free": self._free.get(node["id"], {})} for node in self._nodes] if reachable else [],
        }

    def _since_us(self) -> int:
        try:
            return int(self._answered_file.read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def host(self, node: str) -> str:
        """The address of a node, for messages."""
        return next((str(other["host"]) for other in self._nodes if other["id"] == node), "of unknown address")

    def node_at(self, host: str) -> str:
        """The id of the node at an address, a living one if there are several. Empty if there is none."""
        nodes = [node for node in self._nodes if node["host"] == host]
        return str(max(nodes, key=lambda node: bool(node["alive"]))["id"]) if nodes else ""

    def dead(self, node: str) -> bool:
        """Whether the head reported this node as lost when it was last polled."""
        return any(other["id"] == node and not other["alive"] for other in self._nodes)

    def died(self, node: str) -> bool:
        """Whether the head reports this node as lost now."""
        self._update_nodes()
        return self.dead(node)

    def cordon(self, node: str) -> None:
        """Avoid this node for a while: it does not respond, and the head may not know yet."""
        self._cordoned_s[node] = time.monotonic() + CORDON_S

    def _cordoned(self) -> list[str]:
        now_s = time.monotonic()
        return [node for node, until_s in list(self._cordoned_s.items()) if now_s < until_s]

    # -- gangs

    def reserve(self, gang: str, bundles: Bundles, strategy: str, apart: str = "") -> str:
        """Request a placement group, unless there is one. Returns its state: `cluster_api.CREATED`
        once it is completely placed.

        With `apart`, it is kept off nodes with groups whose names begin with that, if possible.
        """
        requested = [{kind: size for kind, size in bundles[name].items() if size} for name in sorted(bundles)]
        with self._lock:  # two concurrent requests for one group must not create two
            return str(self._call_api("reserve", gang, requested, strategy, apart, self._cordoned()))

    def release(self, gang: str) -> None:
        """Kill the actors of a gang and remove its group. Idempotent."""
        for _ in range(_MAX_ATTEMPTS):
            names = self._call_api("remove", gang)
            if not names:
                return
            for name in names:
                self.kill(name)
        raise ClusterUnavailableError(f"{names[0]} does not end.")

    def gangs(self, prefix: str) -> list[str]:
        return list(self._call_api("gangs", prefix))

    # -- replicas

    def actors(self, prefix: str) -> list[str]:
        """The names of living actors with this prefix."""
        return list(self._call_api("actors", prefix))

    def start(self, name: str, gang: str, bundle: int, gpus: float, lease_s: float) -> list[str] | None:
        """Start the actor of this name, unless others of the same replica live; returns their names. Returns None if
        its gang has no capacity yet."""
        others: list[str] | None = self._call_api("start", name, gang, bundle, gpus, lease_s)
        return others

    def find(self, name: str) -> Any:
        """The actor of this name. Raises `ValueError` if there is none."""
        return ray.get_actor(name, namespace=self.namespace)

    def kill(self, name: str, *, answers: bool = True) -> None:
        """End an actor with all descendants of its agent. Blocks until that is done, also if another caller does it.

        If it no longer `answers`, it is only marked as dead; its agent ends when its node notices.
        """
        with self._end_locks.setdefault(name, threading.Lock()):
            try:
                actor = self.find(name)
            except ValueError:
                return
            _end_actor(actor, name, answers)
        self._end_locks.pop(name, None)


def _end_actor(actor: Any, name: str, answers: bool) -> None:
    try:
        tail = ray.get(actor.end.remote(), timeout=_END_TIMEOUT_S) if answers else ""
        if tail:
            sys.stderr.write(f"{name}: {tail}\n")
    except ray.exceptions.ActorDiedError:
        return  # by itself or with its node, and its agent with it
    except ray.exceptions.RayError as exc:
        sys.stderr.write(f"{name} did not end by itself: {first_line(exc)}\n")
    ray.kill(actor, no_restart=True)


def _connect_address(address: str) -> str:
    """The address for `ray.init`: unchanged on a node of the cluster, or else that of the Ray client."""
    if address.startswith(_CLIENT_SCHEME):
        return address
    host, _, port = address.rpartition(":")
    names = {address, f"{_resolve(host)}:{port}"}
    for arguments in _raylets():
        if any(f"--gcs-address={name}" in arguments for name in names):
            return f"{_resolve(host)}:{port}"
    return f"{_CLIENT_SCHEME}{host}:{_CLIENT_PORT}"


def _resolve(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def _raylets() -> Iterator[list[str]]:
    """Command lines of Ray's node processes in this machine's network namespace."""
    namespace = Path("/proc/self/ns/net").readlink()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            argv = (process / "cmdline").read_text(errors="replace").split("\0")
            if argv[0].endswith("raylet") and (process / "ns" / "net").readlink() == namespace:
                yield argv
        except OSError:  # it has exited, or belongs to another user
            continue


def first_line(exc: BaseException) -> str:
    lines = [line for line in str(exc).splitlines() if line.strip()]
    return f"{type(exc).__name__}: {lines[0] if lines else ''}"
