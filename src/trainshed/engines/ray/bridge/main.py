"""The bridge: the one process beside the server that talks to Ray. Server and replica proxies talk to it over a socket.

A request is a line of JSON, and so is its response; `start` turns the connection into the stream of a replica. All of
the bridge's state can be found in Ray again, by name. So the bridge may be killed at any time, and is restarted.
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
_RECONNECT_INTERVAL_S = 2.0  #: between two attempts to reach the head
_SWEEP_INTERVAL_S = 20.0  #: an actor without a proxy at two sweeps in a row is killed


def main(argv: list[str]) -> int:
    """`bridge FILE`: FILE has `address`, `namespace`, `socket`, `answered`, and `node`, the folder of shipped code."""
    config = json.loads(Path(argv[1]).read_bytes())
    os.umask(0o077)
    for module in (actor, cluster_api):  # nodes have Ray, but not this package
        ray.cloudpickle.register_pickle_by_value(module)
    cluster = ClusterConnection(config["address"], config["namespace"], Path(config["answered"]))
    server = BridgeServer(cluster, pack_node_code(Path(config["node"])))
    listener = _listen(Path(config["socket"]))
    threading.Thread(target=_stay_connected, args=(cluster, server), name="cluster", daemon=True).start()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=server.serve, args=(connection,), name="connection", daemon=True).start()


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    listener.bind(str(draft))
    listener.listen(128)
    draft.rename(path)  # from now on clients can connect
    return listener


def _stay_connected(cluster: ClusterConnection, server: BridgeServer) -> None:
    """Connect, however long that takes. Exits the process when the connection is broken permanently."""
    status = 1
    try:
        while True:
            try:
                cluster.connect()
                break
            except Exception as exc:  # noqa: BLE001 - any error of Ray is reported, and the connection is retried
                cluster.why = first_line(exc)
                sys.stderr.write(f"The cluster at {cluster.address} can't be reached: {exc}\n")
                ray.shutdown()
                time.sleep(_RECONNECT_INTERVAL_S)
        threading.Thread(target=server.sweep, name="sweep", daemon=True).start()
        cluster.watch()
        status = 3
    finally:
        sys.stderr.flush()
        os._exit(status)


class BridgeServer:
    """Serves requests. `code` is the node's code as a zip, with its digest."""

    def __init__(self, cluster: ClusterConnection, code: tuple[bytes, str]) -> None:
        self._cluster = cluster
        self._code = code
        self._sessions: dict[str, ReplicaSession] = {}  # by the name of the actor; each has a replica proxy
        self._lock = threading.Lock()
        self._handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "cluster": self._view,
            "reserve": self._reserve,
            "release": self._release,
            "gangs": self._gangs,
        }

    def serve(self, connection: socket.socket) -> None:
        """Serve all requests of one connection."""
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                if request["do"] == "start":
                    self._start(connection, request, lines)
                    return
                try:
                    response = self._handlers[request["do"]](request)
                except (ClusterUnavailableError, ValueError, ray.exceptions.RayError) as exc:
                    response = {"error": str(exc) if isinstance(exc, ClusterUnavailableError) else first_line(exc)}
                connection.sendall(json.dumps(response).encode() + b"\n")

    def _start(self, connection: socket.socket, request: dict[str, Any], lines: Any) -> None:
        """Any other error ends the connection, and the replica proxy reconnects."""
        session = ReplicaSession(self._cluster, connection, request, self._code)
        with self._lock:
            previous = self._sessions.get(session.name)
            self._sessions[session.name] = session
        if previous is not None:
            previous.leave()
        try:
            session.run(lines)
        finally:
            with self._lock:
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
        """Kill actors without a replica proxy: those whose proxy exited while there was no bridge."""
        abandoned: set[str] = set()
        while True:
            time.sleep(_SWEEP_INTERVAL_S)
            try:
                abandoned = self._kill_abandoned(abandoned) if self._cluster.answers() else set()
            except Exception as exc:  # noqa: BLE001 - any error of Ray; the next sweep may succeed
                sys.stderr.write(f"Actors could not be looked through: {first_line(exc)}\n")

    def _kill_abandoned(self, previous: set[str]) -> set[str]:
        """Kill actors that were abandoned at the `previous` sweep too. Returns those that are abandoned now."""
        abandoned = set(self._cluster.actors(PREFIX))
        with self._lock:
            abandoned -= set(self._sessions)
        for name in abandoned & previous:
            sys.stderr.write(f"Nobody stands for {name}: it is ended.\n")
            self._cluster.kill(name)
        return abandoned


def pack_node_code(folder: Path) -> tuple[bytes, str]:
    """The shipped code for nodes as a zip, with its digest."""
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
