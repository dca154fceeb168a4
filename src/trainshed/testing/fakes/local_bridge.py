"""A bridge without Ray, for tests: the cluster is this machine, and the actors are objects in the test."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import subprocess
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainshed.engines.ray.bridge.actor import AgentActor
from trainshed.engines.shipping import ship
from trainshed.testing.clusters.gangs import make_runtime

HOST = "127.0.0.1"
NODE = "a-node"
Socket = socket.socket


class LocalAgentActor(AgentActor):
    """Runs an agent on this machine."""

    def _where(self) -> tuple[str, str]:
        return HOST, NODE

    def _leave(self) -> None:
        """Stay: this process is the test's own."""
        if self._agent is not None:
            self.lose()

    def end(self) -> str:
        """Blocks until the agent has exited, however slow the machine is."""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return super().end()

    def lose(self) -> None:
        """Act as if the actor's process were killed: close the agent's stdin, and release its files."""
        self._agent.stdin.close()
        self._release_workspace()

    @property
    def agent_pid(self) -> int:
        """The pid of the agent's reaper."""
        return int(self._agent.pid)


class LocalBridge:
    """Serves replica proxies. `cache` is the node's, and has to be in the environment as TRAINSHED_NODE_CACHE."""

    def __init__(self, folder: Path, cache: Path, code: Path | None = None) -> None:
        """`code` is what nodes are given; by default the shipped code."""
        self.path = folder / "sock"
        self.actors: dict[str, LocalAgentActor] = {}
        self.lost: dict[str, bool] = {}  #: replicas to report as lost -> whether with their node
        self.lost_responses = 0  #: requests to come that start their replica, and whose connection then breaks
        self._code = (_zip(code or ship(folder / "node")), "0123456789abcdef")
        self._connections: set[Socket] = set()
        self._listener: Socket | None = None
        make_runtime(cache / "runtimes")

    def start(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.path.unlink(missing_ok=True)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def stop(self) -> None:
        """Stop as if it were killed: no messages are sent, and actors live on."""
        listener, self._listener = self._listener, None
        self.path.unlink(missing_ok=True)
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)  # so that the accepting thread ends
            listener.close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def socket(self) -> Path:
        return self.path

    def gangs(self) -> list[str]:
        """List the gangs that have an actor."""
        return sorted({name.rpartition("/")[0].rpartition("/")[0] for name in list(self.actors)})

    def release(self, gang: str) -> None:
        for name in [each for each in list(self.actors) if each.startswith(f"{gang}/")]:
            self._end(name)

    def close(self) -> None:
        """End everything."""
        self.stop()
        for actor in list(self.actors.values()):
            actor.end()

    def _accept(self, listener: Socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._serve, args=(connection, listener), daemon=True).start()

    def _serve(self, connection: Socket, listener: Socket) -> None:
        self._connections.add(connection)
        with connection, connection.makefile("rb") as lines:
            request_line = b""
            with contextlib.suppress(OSError):
                request_line = lines.readline()
            if not request_line.endswith(b"\n"):  # the client disconnected before its request was complete
                self._connections.discard(connection)
                return
            request = json.loads(request_line)
            replica = f"{request['gang']}/{request['replica']}/"
            name = replica + request["incarnation"]
            for other in [each for each in list(self.actors) if each.startswith(replica) and each != name]:
                self._end(other)
            if (actor := self.actors.get(name)) is None:
                actor = self.actors[name] = LocalAgentActor(request["lease_s"])
            actor.begin(*self._code, {**request["order"], "incarnation": request["incarnation"]})
            if self.lost_responses:
                self.lost_responses -= 1
                self._connections.discard(connection)
                return
            threading.Thread(target=self._pump, args=(connection, actor, request), daemon=True).start()
            with contextlib.suppress(OSError):
                for line in lines:
                    actor.tell(line)
            self._connections.discard(connection)
            if self._listener is listener:
                self._end(name)

    def _end(self, name: str) -> None:
        """End an actor, unless another thread does."""
        if (actor := self.actors.pop(name, None)) is not None:
            actor.end()

    def _pump(self, connection: Socket, actor: LocalAgentActor, request: Mapping[str, Any]) -> None:
        offset, ended = int(request["offset"]), False
        with contextlib.suppress(OSError, AttributeError):
            while not ended and request["replica"] not in self.lost:
                data, ended = actor.read(offset, 0.1)
                offset += len(data)
                if data:
                    ended = False
                    connection.sendall(json.dumps({"bytes": len(data)}).encode() + b"\n" + data)
            node = self.lost.pop(request["replica"], False)
            self.actors.pop(f"{request['gang']}/{request['replica']}/{request['incarnation']}", actor).end()
            message = {"lost": f"The node {NODE} with {request['replica']} was lost.", "node": node}
            connection.sendall(json.dumps(message).encode() + b"\n")


def _zip(node: Path) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        serving = (node / "trainshed_serving").rglob("*.py")
        for path in [node / "run.py", *(node / "trainshed_node").rglob("*.py"), *serving]:
            archive.write(path, path.relative_to(node))
    return out.getvalue()
