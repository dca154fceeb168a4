"""Serves one replica proxy: from its request to the last byte of its replica's stream."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayActorError, RayError

from .cluster import ClusterConnection
from .cluster_api import CREATED

NODE_LOST_AFTER_S = 25.0  #: a node that does not respond for this long, while the head does, counts as lost
_READ_TIMEOUT_S = 2.0  #: how long a read waits for data
_SUSPECT_AFTER_S = 8.0  #: an actor that has not responded for this long is suspect
_POLL_TIMEOUT_S = 3.0  #: of one wait for the actor, before other checks run
_RETRY_INTERVAL_S = 1.0  #: before an unreachable actor is called again
_PENDING_MIN_S, _PENDING_MAX_S = 0.2, 2.0  #: between two checks of a pending group, initially and later
_NODE_DIED = "its node has died"  #: in Ray's error messages
_LOG_AFTER_S = 5.0  #: before a wait is logged
_SHUTDOWN_TIMEOUT_S = 2.0  #: for a proxy to exit after its replica's last frame


class _ProxyGoneError(Exception):
    """The replica proxy has closed its connection."""


class ReplicaLostError(Exception):
    """The replica is lost. `node`: and so is the node that it ran on."""

    def __init__(self, reason: str, *, node: bool) -> None:
        super().__init__(reason)
        self.node = node


class ReplicaSession:
    """Serves one replica proxy in two threads: one forwards the stream, the other the proxy's commands."""

    def __init__(
        self, cluster: ClusterConnection, connection: socket.socket, request: dict[str, Any], code: tuple[bytes, str]
    ):
        self._cluster = cluster
        self._connection = connection
        self._request = request
        self._code = code
        self._replica = str(request["replica"])
        self._offset = int(request["offset"])
        self.name = "{}/{}/{}".format(request["gang"], self._replica, request["incarnation"])
        self._actor: Any = None
        self._node = ""  # its id
        self._last_response_s = 0.0  # when the actor last responded
        self._proxy_gone = threading.Event()
        self._kill_lock = threading.Lock()
        self._ended = False  # this session has ended, or another one has replaced it

    def leave(self) -> None:
        """Give up the replica to another session."""
        self._ended = True

    def run(self, commands: Any) -> None:
        """Serve until the replica has ended or the proxy is gone; then the replica is killed.
        `commands` are lines of the proxy."""
        try:
            self._cluster.wait()
            self._actor = self._find_actor() if self._offset else self._start_actor()
            self._start_agent()
            threading.Thread(target=self._forward_commands, args=(commands,), name="orders", daemon=True).start()
            self._forward_stream()
        except ReplicaLostError as exc:
            if exc.node:
                self._cluster.cordon(self._node)
            self._kill(answers=not exc.node)
            self._report_loss(exc)
        except _ProxyGoneError:
            self._end()
        finally:
            self._ended = True

    def _end(self) -> None:
        """The proxy is gone, so kill the replica."""
        self._proxy_gone.set()
        if self._node and time.monotonic() - self._last_response_s > _SUSPECT_AFTER_S:
            self._cluster.cordon(self._node)
        self._kill(answers=bool(self._node))

    def _kill(self, *, answers: bool) -> None:
        """Kill the replica, unless that is done or another session has it."""
        with self._kill_lock:
            if not self._ended:
                self._cluster.kill(self.name, answers=answers)
                self._ended = True

    # -- starting

    def _await_placement(self) -> None:
        """Blocks until the gang's placement group is completely placed. A group that is gone is requested again."""
        since_s, logged = time.monotonic(), False
        request = self._request
        request_arguments = (request["gang"], request["bundles"], request["strategy"], request.get("apart", ""))
        while self._cluster.reserve(*request_arguments) != CREATED:
            if not logged and time.monotonic() - since_s > _LOG_AFTER_S:
                logged = True
                self._send({"say": f"Waiting for room on the Ray cluster at {self._cluster.address}."})
            self._pause(_PENDING_MAX_S if logged else _PENDING_MIN_S)

    def _find_actor(self) -> Any:
        """The actor of a replica whose stream has begun. Raises `ReplicaLostError` if it is gone."""
        self._node = self._cluster.node_at(str(self._request.get("host", "")))
        try:
            return self._cluster.find(self.name)
        except ValueError as exc:
            if self._cluster.died(self._node):
                raise self._lost_error(exc) from None
            raise ReplicaLostError(f"{self._replica} is not on the cluster any more.", node=True) from None

    def _start_actor(self) -> Any:
        """Start the actor of a new incarnation in its bundle. Ends older incarnations first."""
        gang, bundles = self._request["gang"], self._request["bundles"]
        gpus = float(bundles[self._replica].get("GPU", 0))
        bundle = sorted(bundles).index(self._replica)
        while True:
            older = self._cluster.start(self.name, gang, bundle, gpus, float(self._request["lease_s"]))
            if older is None:
                self._await_placement()
            elif not older:
                return self._cluster.find(self.name)
            else:
                for name in older:
                    self._cluster.kill(name)
                self._pause(0.0)

    def _start_agent(self) -> None:
        """Have the agent started. The shipped code is sent only to a node that does not have it."""
        code, digest = self._code
        self._node = self._begin_actor(b"", digest) or self._begin_actor(code, digest)

    def _begin_actor(self, code: bytes, digest: str) -> str:
        spec = dict(self._request["order"], incarnation=self._request["incarnation"])
        call = self._actor.begin.remote(code, digest, spec)
        while True:
            try:
                node = str(ray.get(call, timeout=_POLL_TIMEOUT_S))
                self._last_response_s = time.monotonic()
                return node
            except GetTimeoutError:
                pass
            except ActorUnavailableError:  # the head will find out whether it is lost
                time.sleep(_RETRY_INTERVAL_S)
                call = self._actor.begin.remote(code, digest, spec)
            except RayError as exc:
                raise self._lost_error(exc) from exc
            self._pause(0.0)
            if self._cluster.dead(self._node):
                raise self._lost_error(None)

    # -- running

    def _forward_stream(self) -> None:
        """Forward the stream to the proxy from its offset on."""
        while True:
            data, last = self._read()
            if data:
                self._offset += len(data)
                self._send({"bytes": len(data)}, data)
            if last:
                self._pause(_SHUTDOWN_TIMEOUT_S if data else 0.0)
                raise ReplicaLostError(f"The agent of {self._replica} was killed.", node=False)

    def _read(self) -> tuple[bytes, bool]:
        """The next bytes. A read whose response is lost is repeated."""
        silent_s, checked_s = 0.0, time.monotonic()
        call = self._actor.read.remote(self._offset, _READ_TIMEOUT_S)
        while True:
            try:
                response: tuple[bytes, bool] = ray.get(call, timeout=_POLL_TIMEOUT_S)
                self._last_response_s = time.monotonic()
                return response
            except GetTimeoutError:
                pass
            except ActorUnavailableError:
                time.sleep(_RETRY_INTERVAL_S)
                call = self._actor.read.remote(self._offset, _READ_TIMEOUT_S)
            except (ActorDiedError, RayActorError) as exc:
                raise (_ProxyGoneError() if self._proxy_gone.is_set() else self._lost_error(exc)) from exc
            self._pause(0.0)
            now_s = time.monotonic()
            if self._cluster.answers():  # while the head does not respond either, silence says nothing about the node
                silent_s += now_s - checked_s
            checked_s = now_s
            if silent_s > NODE_LOST_AFTER_S or self._cluster.dead(self._node):
                raise self._lost_error(None)

    def _lost_error(self, exc: BaseException | None) -> ReplicaLostError:
        replica, host = self._replica, self._cluster.host(self._node)
        if exc is None and not self._cluster.dead(self._node):
            return ReplicaLostError(
                f"The node {host} with {replica} has not answered for {NODE_LOST_AFTER_S:g} s.", node=True
            )
        if _NODE_DIED in str(exc) or self._cluster.died(self._node):
            return ReplicaLostError(f"The node {host} with {replica} was lost.", node=True)
        lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
        return ReplicaLostError(
            "The actor of {} on node {} died: {}".format(replica, host, " ".join(lines)[:500]), node=False
        )

    # -- the replica proxy

    def _forward_commands(self, commands: Any) -> None:
        """Forward the proxy's commands to the agent. Their end means that the proxy is gone."""
        for line in commands:
            self._actor.tell.remote(line)
        self._end()

    def _report_loss(self, loss: ReplicaLostError) -> None:
        try:
            self._send({"lost": str(loss), "node": loss.node})
        except _ProxyGoneError:
            return  # the proxy itself wanted it

    def _pause(self, timeout_s: float) -> None:
        if self._proxy_gone.wait(timeout_s) or self._is_closed():
            raise _ProxyGoneError

    def _is_closed(self) -> bool:
        """Whether the proxy is gone. Valid only while no other thread reads from it."""
        try:
            return self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _send(self, message: dict[str, Any], data: bytes = b"") -> None:
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n" + data)
        except OSError as exc:
            raise _ProxyGoneError from exc
