"""The Ray cluster as the link sees it: whether its head answers, its nodes, and what gangs have there."""

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

LOOK_S = 1.0  #: between two questions to the head
ANSWERS_S = 6.0  #: a head that answered within this time is there
FREE_S = 3.0  #: between two questions about what is free, while anybody wants to know
SHUNNED_S = 120.0  #: by then the head has found out that a machine is gone, or it is back
_ASK_S = 20.0  #: for the desk to answer
_END_S = 10.0  #: for a keeper to kill what there is
_TRIES = 3  #: how often the actors of a gang are ended, before whoever wants that is told
_CLIENT = "ray://"
_CLIENT_PORT = 10001
_ON_THE_HEAD = {"node:__internal_head__": 0.001}


class ClusterUnavailableError(Exception):
    """The cluster does not answer. The text says why, if that is known."""


class ClusterConnection:
    """One connection to Ray, made once. When it breaks for good, the process has to be started again."""

    def __init__(self, address: str, namespace: str, answered: Path) -> None:
        """`answered` is a file that says when the head last answered, also to an earlier process."""
        self.address = address
        self.namespace = namespace
        self.why = ""  #: what Ray said when it could not be reached
        self._answered = answered
        self._answered_s = self._viewed_s = self._free_at = 0.0  # monotonic
        self._nodes: list[dict[str, Any]] = []
        self._free: dict[str, dict[str, float]] = {}
        self._shunned_s: dict[str, float] = {}  # until when, by id
        self._desk: Any = None  # an actor if this is a client of Ray, else an object
        self._client = False
        self._ends: dict[str, threading.Lock] = {}  # of actors that are being ended
        self._connected = threading.Event()
        self._guard = threading.Lock()

    # -- the connection

    def connect(self) -> None:
        """Connect. Raises whatever Ray does."""
        address = _reachable_from_here(self.address)
        ray.init(address, namespace=self.namespace, log_to_driver=False, logging_level="warning")
        self._client = address.startswith(_CLIENT)
        if self._client:
            self._desk = ray.remote(ClusterApi).options(num_cpus=0, resources=_ON_THE_HEAD, max_concurrency=16).remote()
        else:
            self._desk = ClusterApi()
        self._look()
        self.why = ""
        self._connected.set()

    def watch(self) -> None:
        """Ask the head again and again. Returns when the connection is broken for good."""
        while ray.is_initialized():
            time.sleep(LOOK_S)
            try:
                self._look()
                self._look_at_free()
            except (ConnectionError, ray.exceptions.ActorDiedError) as exc:
                sys.stderr.write(f"The connection is broken: {first_line(exc)}\n")
                return
            except Exception as exc:  # noqa: BLE001 - Ray has many; the head is asked again, and the time tells
                self.why = first_line(exc)
                sys.stderr.write(f"The head did not answer: {self.why}\n")

    def _ask(self, question: str, *arguments: Any) -> Any:
        ask = getattr(self._desk, question)
        return ray.get(ask.remote(*arguments), timeout=_ASK_S) if self._client else ask(*arguments)

    def _look(self) -> None:
        self._nodes = self._ask("nodes")
        self._answered_s = time.monotonic()
        self._answered.write_text(str(int(time.time() * 1_000_000)))

    def _look_at_free(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._free_at and now_s < self._viewed_s + 2 * FREE_S:
            self._free_at = now_s + FREE_S
            self._free = self._ask("free")

    def answers(self) -> bool:
        """Whether the head has answered of late."""
        return self._connected.is_set() and time.monotonic() - self._answered_s < ANSWERS_S

    def check(self) -> None:
        """`ClusterUnavailableError` if it has not."""
        if not self.answers():
            raise ClusterUnavailableError(f"The Ray cluster at {self.address} does not answer. {self.why}".rstrip())

    def wait(self) -> None:
        """Until there is a connection."""
        self._connected.wait()

    def view(self) -> dict[str, Any]:
        """As the server is told."""
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
            return int(self._answered.read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def host(self, node: str) -> str:
        """The address of a node, for people."""
        return next((str(each["host"]) for each in self._nodes if each["id"] == node), "of unknown address")

    def node_at(self, host: str) -> str:
        """The id of the node at an address, a living one if there are several; empty if there is none."""
        found = [each for each in self._nodes if each["host"] == host]
        return str(max(found, key=lambda each: bool(each["alive"]))["id"]) if found else ""

    def dead(self, node: str) -> bool:
        """Whether the head held this node for lost when it was last asked."""
        return any(each["id"] == node and not each["alive"] for each in self._nodes)

    def died(self, node: str) -> bool:
        """Whether the head holds this node for lost now."""
        self._look()
        return self.dead(node)

    def cordon(self, node: str) -> None:
        """Place nothing there for a while that could be elsewhere: it does not answer, and the head may not know."""
        self._shunned_s[node] = time.monotonic() + SHUNNED_S

    def _shunned(self) -> list[str]:
        now_s = time.monotonic()
        return [node for node, until_s in list(self._shunned_s.items()) if now_s < until_s]

    # -- gangs

    def reserve(self, gang: str, bundles: Bundles, strategy: str, apart: str = "") -> str:
        """Ask for a group, unless there is one; returns its state, `desk.CREATED` once all of it is placed.

        With `apart`, away from groups whose names begin so, where that can be.
        """
        wanted = [{kind: size for kind, size in bundles[name].items() if size} for name in sorted(bundles)]
        with self._guard:  # two who ask for one group at once must not get two
            return str(self._ask("reserve", gang, wanted, strategy, apart, self._shunned()))

    def release(self, gang: str) -> None:
        """Kill the actors of a gang and remove its group. What is not there is left alone."""
        for _ in range(_TRIES):
            names = self._ask("remove", gang)
            if not names:
                return
            for name in names:
                self.kill(name)
        raise ClusterUnavailableError(f"{names[0]} does not end.")

    def gangs(self, prefix: str) -> list[str]:
        return list(self._ask("gangs", prefix))

    # -- replicas

    def actors(self, prefix: str) -> list[str]:
        """The names of living actors that begin so."""
        return list(self._ask("actors", prefix))

    def start(self, name: str, gang: str, bundle: int, gpus: float, lease_s: float) -> list[str] | None:
        """Have the actor of this name, unless others of the same replica live, which are the answer. None: its gang
        has no room yet.
        """
        others: list[str] | None = self._ask("start", name, gang, bundle, gpus, lease_s)
        return others

    def find(self, name: str) -> Any:
        """The actor of this name; `ValueError` if there is none."""
        return ray.get_actor(name, namespace=self.namespace)

    def kill(self, name: str, *, answers: bool = True) -> None:
        """End an actor, with all that its keeper started. Returns when that is seen to, by whoever was asked first.

        One that `answers` no more is only marked as dead; its keeper ends when its node finds that out.
        """
        with self._ends.setdefault(name, threading.Lock()):
            try:
                actor = self.find(name)
            except ValueError:
                return
            _end(actor, name, answers)
        self._ends.pop(name, None)


def _end(actor: Any, name: str, answers: bool) -> None:
    try:
        said = ray.get(actor.end.remote(), timeout=_END_S) if answers else ""
        if said:
            sys.stderr.write(f"{name}: {said}\n")
    except ray.exceptions.ActorDiedError:
        return  # by itself, or with its node; and its keeper with it
    except ray.exceptions.RayError as exc:
        sys.stderr.write(f"{name} did not end by itself: {first_line(exc)}\n")
    ray.kill(actor, no_restart=True)


def _reachable_from_here(address: str) -> str:
    """The address that Ray takes: as it is if this machine is a node of that cluster, else that of Ray's client."""
    if address.startswith(_CLIENT):
        return address
    host, _, port = address.rpartition(":")
    names = {address, f"{_resolved(host)}:{port}"}
    for arguments in _raylets():
        if any(f"--gcs-address={name}" in arguments for name in names):
            return f"{_resolved(host)}:{port}"
    return f"{_CLIENT}{host}:{_CLIENT_PORT}"


def _resolved(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def _raylets() -> Iterator[list[str]]:
    """The command lines of Ray's node processes on this machine, as far as its network goes."""
    here = Path("/proc/self/ns/net").readlink()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text(errors="replace").split("\0")
            if words[0].endswith("raylet") and (process / "ns" / "net").readlink() == here:
                yield words
        except OSError:  # it ended, or belongs to someone else
            continue


def first_line(exc: BaseException) -> str:
    lines = [line for line in str(exc).splitlines() if line.strip()]
    return f"{type(exc).__name__}: {lines[0] if lines else ''}"
