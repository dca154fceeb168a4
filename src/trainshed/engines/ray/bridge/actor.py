"""The Ray actor of one incarnation of a replica: starts the agent on its node and reads the agent's stream.

Pickled by value, since nodes have Ray but not this package. So this module imports only the standard library, and takes
the rest from the shipped code, which comes with `begin`. Every call is idempotent.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

_POLL_MIN_S, _POLL_MAX_S = 0.02, 0.1  #: between two reads of the stream, initially and when it is idle
_END_TIMEOUT_S = 8.0  #: for the agent to kill all descendants


class AgentActor:
    """Holds the agent's stdin. When this process is gone, the replica is killed."""

    def __init__(self, lease_s: float) -> None:
        """Exits by itself if there is no call for `lease_s` seconds."""
        self._host, self._node = self._where()
        with contextlib.suppress(PermissionError):  # Ray lowers it; this process must respond beside a busy replica
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        self._lease_s = lease_s
        self._last_call_s = time.monotonic()
        self._lock = threading.Lock()
        self._agent: Any = None
        self._reader: Any = None
        self._run_file = Path()  # of the shipped code
        self._workspace: Any = None  # the module `node.remote.workspace`
        self._workspace_lock = -1  # lock that marks the workspace as in use
        self._cache = self._folder = Path()
        threading.Thread(target=self._watch_lease, name="lease", daemon=True).start()

    def begin(self, code: bytes, digest: str, spec: dict[str, Any]) -> str:
        """Start the agent and return the id of this node. Idempotent.

        `code` is the shipped code as a zip. It may be empty; if this node does not have the
        code yet, the result is empty.
        """
        self._last_call_s = time.monotonic()
        with self._lock:
            if self._agent is None and not self._start_agent(code, digest, spec):
                return ""
        return self._node

    def _where(self) -> tuple[str, str]:
        """The address and the id of this node."""
        import ray

        return str(ray.util.get_node_ip_address()), str(ray.get_runtime_context().get_node_id())

    def _start_agent(self, code: bytes, digest: str, spec: dict[str, Any]) -> bool:
        cache = Path(os.environ.get("TRAINSHED_NODE_CACHE") or Path.home() / ".cache" / "trainshed")
        node = cache / "node" / digest
        if not node.is_dir():
            if not code:
                return False
            _unpack(code, node)
        self._run_file = node / "run.py"
        sys.path.insert(0, str(node))
        self._workspace = importlib.import_module("trainshed_node.remote.workspace")
        replica = self._workspace.replica_folder(str(cache), spec["gang"], spec["replica"])
        self._cache, self._folder = cache, Path(replica, spec["incarnation"])
        lock = self._workspace.lock_of(replica)
        agent_spec = dict(spec, cache=str(cache), host=self._host, python=sys.executable, lock=lock)
        self._workspace_lock = self._workspace.create(str(self._folder), agent_spec)
        self._reader = importlib.import_module("trainshed_node.remote.streams").StreamReader(
            str(self._folder / "stream")
        )
        with open(self._folder / "agent.log", "ab") as log:
            self._agent = subprocess.Popen(
                [sys.executable, "-I", "-S", self._run_file, "agent", self._folder],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._folder,
            )
        return True

    def read(self, offset: int, wait_s: float) -> tuple[bytes, bool]:
        """Read the stream from `offset` on, as soon as there is anything. Also returns whether nothing comes after it.

        Bytes before `offset` count as received and are removed.
        """
        deadline = time.monotonic() + wait_s
        self._reader.forget(offset)
        has_data, interval_s = False, _POLL_MIN_S
        while True:
            self._last_call_s = time.monotonic()
            ended = self._agent.poll() is not None
            data = self._reader.read(offset)
            if has_data or ended or time.monotonic() >= deadline:
                return data, ended and not self._reader.read(offset + len(data), 1)
            has_data = bool(data)  # more may follow immediately, and a short response costs as much as a long one
            time.sleep(_POLL_MIN_S if has_data else interval_s)
            interval_s = min(1.5 * interval_s, _POLL_MAX_S)

    def tell(self, line: bytes) -> None:
        """Send a command to the agent. Ignored if the agent has exited."""
        self._last_call_s = time.monotonic()
        with self._lock:
            try:
                self._agent.stdin.write(line)
                self._agent.stdin.flush()
            except (BrokenPipeError, ValueError):
                return

    def end(self) -> str:
        """Kill the agent with all descendants, and remove the workspace. Returns the agent's own log tail.

        The record of a container stays until that is removed: the next agent that starts on this node looks for it.
        """
        self._last_call_s = time.monotonic()
        with self._lock:
            if self._agent is None:
                return ""
            with contextlib.suppress(BrokenPipeError):
                self._agent.stdin.close()
        self._agent.wait(_END_TIMEOUT_S)
        container = self._folder / "containers.json"
        try:
            if container.exists():  # the agent was killed before it could remove its container
                self._remove_containers()
            tail = (self._folder / "agent.log").read_text(errors="replace")[-2000:]
        except FileNotFoundError:  # another call was faster
            tail = ""
        if not container.exists():
            self._workspace.remove(str(self._cache), str(self._folder))
        self._release_workspace()
        return tail

    def _remove_containers(self) -> None:
        """Remove the container of a replica whose agent is gone."""
        with open(self._folder / "agent.log", "ab") as log:
            subprocess.run(
                [sys.executable, "-I", "-S", self._run_file, "remove-containers", self._folder],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=_END_TIMEOUT_S,
                check=False,
            )

    def _release_workspace(self) -> None:
        """Mark the workspace as unused."""
        with self._lock:
            lock, self._workspace_lock = self._workspace_lock, -1
        if lock >= 0:
            os.close(lock)

    def _watch_lease(self) -> None:
        while time.monotonic() - self._last_call_s < self._lease_s:
            time.sleep(min(1.0, self._lease_s))
        self._leave()

    def _leave(self) -> None:
        """Exit this process, which belongs to the actor alone. That closes the agent's stdin."""
        os._exit(0)


def _unpack(code: bytes, folder: Path) -> None:
    """Extract the shipped code. The folder appears complete or not at all."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent))
    with zipfile.ZipFile(io.BytesIO(code)) as archive:
        archive.extractall(draft)
    try:
        draft.rename(folder)
    except OSError:  # another replica was faster
        shutil.rmtree(draft)
