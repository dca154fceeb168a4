"""One stand-in and the copy of a replica that it stands for: from its request to the last byte of the stream."""

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

UNANSWERED_S = 25.0  #: a node that does not answer for so long, while the head does, counts as lost
_READ_S = 2.0  #: how long a read waits for something to come
_SILENT_S = 8.0  #: an actor that has not answered for so long is worth a doubt
_SLICE_S = 3.0  #: how long we wait for it, before we look whether anything is wrong
_AGAIN_S = 1.0  #: before an actor that can't be reached is asked again
_PLACE_S, _PLACE_LATER_S = 0.2, 2.0  #: between two looks for room, at first and when it takes long
_NODE_DIED = "its node has died"  #: in Ray's own words
_PATIENCE_S = 5.0  #: before a wait is worth a line in the log
_GOODBYE_S = 2.0  #: for a stand-in to go that was sent the last word of its replica


class _ProxyGoneError(Exception):
    """The stand-in has closed its connection."""


class ReplicaLostError(Exception):
    """The replica is lost. `node`: and so is the machine that it ran on."""

    def __init__(self, why: str, *, node: bool) -> None:
        super().__init__(why)
        self.node = node


class ReplicaSession:
    """Serves one stand-in, in two threads: this one takes the stream to it, another one its orders to the keeper."""

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
        self._heard_s = 0.0  # when the actor last answered
        self._gone = threading.Event()
        self._killing = threading.Lock()
        self._over = False  # this session has ended, or another one has taken its place

    def leave(self) -> None:
        """Let another session have the replica."""
        self._over = True

    def run(self, orders: Any) -> None:
        """Until the replica has ended or the stand-in is gone; then the replica is, too. `orders`: lines from it."""
        try:
            self._cluster.wait()
            self._actor = self._found() if self._offset else self._started()
            self._begin()
            threading.Thread(target=self._pass_on, args=(orders,), name="orders", daemon=True).start()
            self._pump()
        except ReplicaLostError as exc:
            if exc.node:
                self._cluster.cordon(self._node)
            self._kill(answers=not exc.node)
            self._tell_loss(exc)
        except _ProxyGoneError:
            self._end()
        finally:
            self._over = True

    def _end(self) -> None:
        """The stand-in is gone: so is the replica."""
        self._gone.set()
        if self._node and time.monotonic() - self._heard_s > _SILENT_S:
            self._cluster.cordon(self._node)
        self._kill(answers=bool(self._node))

    def _kill(self, *, answers: bool) -> None:
        """End the replica, unless that was done, or another session has it."""
        with self._killing:
            if not self._over:
                self._cluster.kill(self.name, answers=answers)
                self._over = True

    # -- starting

    def _place(self) -> None:
        """Wait until the gang's group is whole. One that is gone is asked for again."""
        since, said = time.monotonic(), False
        request = self._request
        wanted = (request["gang"], request["bundles"], request["strategy"], request.get("apart", ""))
        while self._cluster.reserve(*wanted) != CREATED:
            if not said and time.monotonic() - since > _PATIENCE_S:
                said = True
                self._send({"say": f"Waiting for room on the Ray cluster at {self._cluster.address}."})
            self._pause(_PLACE_LATER_S if said else _PLACE_S)

    def _found(self) -> Any:
        """The actor of a copy that has begun to speak. If it is not there any more, it is lost."""
        self._node = self._cluster.node_at(str(self._request.get("host", "")))
        try:
            return self._cluster.find(self.name)
        except ValueError as exc:
            if self._cluster.died(self._node):
                raise self._lost(exc) from None
            raise ReplicaLostError(f"{self._replica} is not on the cluster any more.", node=True) from None

    def _started(self) -> Any:
        """The actor of a new copy, in its place in the group. Older copies have ended before."""
        gang, bundles = self._request["gang"], self._request["bundles"]
        gpus = float(bundles[self._replica].get("GPU", 0))
        bundle = sorted(bundles).index(self._replica)
        while True:
            older = self._cluster.start(self.name, gang, bundle, gpus, float(self._request["lease_s"]))
            if older is None:
                self._place()
            elif not older:
                return self._cluster.find(self.name)
            else:
                for name in older:
                    self._cluster.kill(name)
                self._pause(0.0)

    def _begin(self) -> None:
        """Have the keeper started. The node's code is sent only to a node that has not got it."""
        code, digest = self._code
        self._node = self._told(b"", digest) or self._told(code, digest)

    def _told(self, code: bytes, digest: str) -> str:
        order = dict(self._request["order"], incarnation=self._request["incarnation"])
        asked = self._actor.begin.remote(code, digest, order)
        while True:
            try:
                node = str(ray.get(asked, timeout=_SLICE_S))
                self._heard_s = time.monotonic()
                return node
            except GetTimeoutError:
                pass
            except ActorUnavailableError:  # the head will find out whether it is lost
                time.sleep(_AGAIN_S)
                asked = self._actor.begin.remote(code, digest, order)
            except RayError as exc:
                raise self._lost(exc) from exc
            self._pause(0.0)
            if self._cluster.dead(self._node):
                raise self._lost(None)

    # -- running

    def _pump(self) -> None:
        """Take the stream to the stand-in, byte by byte from where it left off."""
        while True:
            data, last = self._read()
            if data:
                self._offset += len(data)
                self._send({"bytes": len(data)}, data)
            if last:
                self._pause(_GOODBYE_S if data else 0.0)
                raise ReplicaLostError(f"The keeper of {self._replica} was killed.", node=False)

    def _read(self) -> tuple[bytes, bool]:
        """The next bytes. A question whose answer is lost is asked again."""
        quiet_s, looked_s = 0.0, time.monotonic()
        asked = self._actor.read.remote(self._offset, _READ_S)
        while True:
            try:
                answer: tuple[bytes, bool] = ray.get(asked, timeout=_SLICE_S)
                self._heard_s = time.monotonic()
                return answer
            except GetTimeoutError:
                pass
            except ActorUnavailableError:
                time.sleep(_AGAIN_S)
                asked = self._actor.read.remote(self._offset, _READ_S)
            except (ActorDiedError, RayActorError) as exc:
                raise (_ProxyGoneError() if self._gone.is_set() else self._lost(exc)) from exc
            self._pause(0.0)
            now_s = time.monotonic()
            if self._cluster.answers():  # time while nobody answers tells nothing of the node
                quiet_s += now_s - looked_s
            looked_s = now_s
            if quiet_s > UNANSWERED_S or self._cluster.dead(self._node):
                raise self._lost(None)

    def _lost(self, exc: BaseException | None) -> ReplicaLostError:
        replica, host = self._replica, self._cluster.host(self._node)
        if exc is None and not self._cluster.dead(self._node):
            return ReplicaLostError(
                f"The node {host} with {replica} has not answered for {UNANSWERED_S:g} s.", node=True
            )
        if _NODE_DIED in str(exc) or self._cluster.died(self._node):
            return ReplicaLostError(f"The node {host} with {replica} was lost.", node=True)
        lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
        return ReplicaLostError(
            "The actor of {} on node {} died: {}".format(replica, host, " ".join(lines)[:500]), node=False
        )

    # -- the stand-in

    def _pass_on(self, orders: Any) -> None:
        """Orders of the stand-in go to the keeper. The end of them means that nobody wants the replica any more."""
        for line in orders:
            self._actor.tell.remote(line)
        self._end()

    def _tell_loss(self, loss: ReplicaLostError) -> None:
        try:
            self._send({"lost": str(loss), "node": loss.node})
        except _ProxyGoneError:
            return  # it was the stand-in's own wish

    def _pause(self, for_s: float) -> None:
        if self._gone.wait(for_s) or self._closed():
            raise _ProxyGoneError

    def _closed(self) -> bool:
        """Whether the stand-in is gone, for as long as no other thread listens to it."""
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
