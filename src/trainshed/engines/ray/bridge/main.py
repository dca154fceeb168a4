"""The link: the one process beside the server that speaks to Ray. Server and stand-ins ask it by a socket.

A request is a line of JSON, and so is its answer; `start` turns the connection into the stream of a replica. What the
link knows can all be found again in Ray, by name: it may be killed at any time, and is started again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from . import actor, cluster_api
from .cluster import ClusterConnection, ClusterUnavailableError, first_line
from .session import ReplicaSession

PREFIX = "trainshed/"  #: of the names of groups and actors
_AGAIN_S = 2.0  #: between two tries to reach the head
_SWEEP_S = 20.0  #: an actor that nobody stands for at two looks, so far apart, is ended


def main(words: list[str]) -> int:
    """`link FILE`: FILE holds `address`, `namespace`, `socket`, `answered`, and `node`, the shipped code."""
    config = json.loads(Path(words[1]).read_bytes())
    os.umask(0o077)
    for module in (actor, cluster_api):  # nodes have Ray, and nothing of ours
        ray.cloudpickle.register_pickle_by_value(module)
    cluster = ClusterConnection(config["address"], config["namespace"], Path(config["answered"]))
    link = BridgeServer(cluster, pack_node_code(Path(config["node"])))
    listener = _listen(Path(config["socket"]))
    threading.Thread(target=_stay_connected, args=(cluster, link), name="cluster", daemon=True).start()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=link.serve, args=(connection,), name="connection", daemon=True).start()


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    listener.bind(str(draft))
    listener.listen(128)
    draft.rename(path)  # whoever finds it can connect
    return listener


def _stay_connected(cluster: ClusterConnection, link: BridgeServer) -> None:
    """Connect, however long that takes. When the connection is broken for good, so is the process."""
    status = 1
    try:
        while True:
            try:
                cluster.connect()
                break
            except Exception as exc:  # noqa: BLE001 - whatever Ray raises, the user is told, and it is tried again
                cluster.why = first_line(exc)
                sys.stderr.write(f"The cluster at {cluster.address} can't be reached: {exc}\n")
                ray.shutdown()
                time.sleep(_AGAIN_S)
        threading.Thread(target=link.sweep, name="sweep", daemon=True).start()
        cluster.watch()
        status = 3
    finally:
        sys.stderr.flush()
        os._exit(status)


class BridgeServer:
    """Answers requests. `code` is the node's code as a zip, with its digest."""

    def __init__(self, cluster: ClusterConnection, code: tuple[bytes, str]) -> None:
        self._cluster = cluster
        self._code = code
        self._sessions: dict[str, ReplicaSession] = {}  # the copies of replicas that a stand-in stands for
        self._guard = threading.Lock()
        self._do: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "cluster": self._view,
            "reserve": self._reserve,
            "release": self._release,
            "gangs": self._gangs,
        }

    def serve(self, connection: socket.socket) -> None:
        """All requests of one connection."""
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                if request["do"] == "start":
                    self._start(connection, request, lines)
                    return
                try:
                    answer = self._do[request["do"]](request)
                except (ClusterUnavailableError, ValueError, ray.exceptions.RayError) as exc:
                    answer = {"error": str(exc) if isinstance(exc, ClusterUnavailableError) else first_line(exc)}
                connection.sendall(json.dumps(answer).encode() + b"\n")

    def _start(self, connection: socket.socket, request: dict[str, Any], lines: Any) -> None:
        """Whatever else goes wrong here ends the connection, and the stand-in comes again."""
        session = ReplicaSession(self._cluster, connection, request, self._code)
        with self._guard:
            before = self._sessions.get(session.name)
            self._sessions[session.name] = session
        if before is not None:
            before.leave()
        try:
            session.run(lines)
        finally:
            with self._guard:
                if self._sessions.get(session.name) is session:
                    del self._sessions[session.name]

    def _view(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._cluster.view()

    def _reserve(self, request: dict[str, Any]) -> dict[str, Any]:
        self._cluster.check()
        state = self._cluster.reserve(request["gang"], request["bundles"], request["strategy"])
        return {"state": "ready" if state == cluster_api.CREATED else "waiting"}

    def _release(self, request: dict[str, Any]) -> dict[str, Any]:
        self._cluster.check()
        self._cluster.release(request["gang"])
        return {}

    def _gangs(self, request: dict[str, Any]) -> dict[str, Any]:
        self._cluster.check()
        return {"gangs": self._cluster.gangs(PREFIX)}

    def sweep(self) -> None:
        """End actors that nobody stands for: those of stand-ins that ended while no link was there."""
        before: set[str] = set()
        while True:
            time.sleep(_SWEEP_S)
            try:
                before = self._end_the_abandoned(before) if self._cluster.answers() else set()
            except Exception as exc:  # noqa: BLE001 - Ray has many; the next look may go better
                sys.stderr.write(f"Actors could not be looked through: {first_line(exc)}\n")

    def _end_the_abandoned(self, before: set[str]) -> set[str]:
        """End those that nobody stood for `before` either; returns whom nobody stands for now."""
        now = set(self._cluster.actors(PREFIX))
        with self._guard:
            now -= set(self._sessions)
        for name in now & before:
            sys.stderr.write(f"Nobody stands for {name}: it is ended.\n")
            self._cluster.kill(name)
        return now


def pack_node_code(folder: Path) -> tuple[bytes, str]:
    """What nodes need of ours, as a zip, and the name that they keep it by."""
    out = io.BytesIO()
    digest = hashlib.sha256()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        code = [
            folder / "run.py",
            *(folder / "trainshed_node").rglob("*.py"),
            *(folder / "trainshed_serving").rglob("*.py"),
        ]
        for path in sorted(code):
            name, content = path.relative_to(folder).as_posix(), path.read_bytes()
            archive.writestr(name, content)
            digest.update(f"{name} {len(content)}\n".encode() + content)
    return out.getvalue(), digest.hexdigest()[:16]
