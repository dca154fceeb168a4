"""What runs inside Ray on a node, one for each copy of a replica: it starts the keeper and reads from its stream.

Pickled by value, since nodes have Ray and nothing of ours: so this module imports the standard library alone, and takes
the rest from the node's code, which comes with the call `begin`. Every call may be repeated.
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

_LOOK_S, _LOOK_LATER_S = 0.02, 0.1  #: between two looks at the stream, at first and when nothing comes
_END_S = 8.0  #: for the keeper to kill all that there is


class AgentActor:
    """Holds the keeper's stdin. When this process is gone, so is the replica."""

    def __init__(self, lease_s: float) -> None:
        """Ends by itself if nobody asks for anything for `lease_s` seconds."""
        self._host, self._node = self._where()
        with contextlib.suppress(PermissionError):  # Ray gives its processes less; a busy replica must not silence us
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        self._lease_s = lease_s
        self._asked_s = time.monotonic()
        self._guard = threading.Lock()
        self._keeper: Any = None
        self._reader: Any = None
        self._run = Path()  # the node's code
        self._folders: Any = None  # the module that knows where things are on a node
        self._held = -1  # by which our folder is seen to be in use
        self._cache = self._folder = Path()
        threading.Thread(target=self._watch_lease, name="lease", daemon=True).start()

    def begin(self, code: bytes, digest: str, order: dict[str, Any]) -> str:
        """Start the keeper, unless that was done before; returns the id of this node.

        `code` is the node's as a zip. It may be left out: if it is not here yet, the answer is empty.
        """
        self._asked_s = time.monotonic()
        with self._guard:
            if self._keeper is None and not self._begin(code, digest, order):
                return ""
        return self._node

    def _where(self) -> tuple[str, str]:
        """The address of this node, and its id."""
        import ray

        return str(ray.util.get_node_ip_address()), str(ray.get_runtime_context().get_node_id())

    def _begin(self, code: bytes, digest: str, order: dict[str, Any]) -> bool:
        cache = Path(os.environ.get("TRAINSHED_NODE_CACHE") or Path.home() / ".cache" / "trainshed")
        node = cache / "node" / digest
        if not node.is_dir():
            if not code:
                return False
            _unpack(code, node)
        self._run = node / "run.py"
        sys.path.insert(0, str(node))
        self._folders = importlib.import_module("trainshed_node.remote.workspace")
        replica = self._folders.replica_folder(str(cache), order["gang"], order["replica"])
        self._cache, self._folder = cache, Path(replica, order["incarnation"])
        lock = self._folders.lock_of(replica)
        whole = dict(order, cache=str(cache), host=self._host, python=sys.executable, lock=lock)
        self._held = self._folders.create(str(self._folder), whole)
        streams = importlib.import_module("trainshed_node.remote.streams")
        self._reader = streams.StreamReader(str(self._folder / "stream"))
        with open(self._folder / "agent.log", "ab") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", self._run, "agent", self._folder],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._folder,
            )
        return True

    def read(self, offset: int, wait_s: float) -> tuple[bytes, bool]:
        """What the stream holds from `offset` on, as soon as there is anything, and whether nothing comes after it.

        What is before `offset` counts as taken, and is removed.
        """
        deadline = time.monotonic() + wait_s
        self._reader.forget(offset)
        seen, look_s = False, _LOOK_S
        while True:
            self._asked_s = time.monotonic()
            ended = self._keeper.poll() is not None
            data = self._reader.read(offset)
            if seen or ended or time.monotonic() >= deadline:
                return data, ended and not self._reader.read(offset + len(data), 1)
            seen = bool(data)  # more may follow at once, and a short answer costs as much as a long one
            time.sleep(_LOOK_S if seen else look_s)
            look_s = min(1.5 * look_s, _LOOK_LATER_S)

    def tell(self, line: bytes) -> None:
        """Pass an order to the keeper; one that has ended needs none."""
        self._asked_s = time.monotonic()
        with self._guard:
            try:
                self._keeper.stdin.write(line)
                self._keeper.stdin.flush()
            except (BrokenPipeError, ValueError):
                return

    def end(self) -> str:
        """Kill all that there is, and remove what it wrote. Returns what the keeper said of itself, if anything.

        What tells of a container stays until that is gone: the next one that starts on this node looks for it.
        """
        self._asked_s = time.monotonic()
        with self._guard:
            if self._keeper is None:
                return ""
            with contextlib.suppress(BrokenPipeError):
                self._keeper.stdin.close()
        self._keeper.wait(_END_S)
        container = self._folder / "containers.json"
        try:
            if container.exists():  # the keeper was killed before it could see to its container
                self._clear()
            said = (self._folder / "agent.log").read_text(errors="replace")[-2000:]
        except FileNotFoundError:  # another call was faster
            said = ""
        if not container.exists():
            self._folders.remove(str(self._cache), str(self._folder))
        self._let_go()
        return said

    def _clear(self) -> None:
        """End the container of a replica whose keeper is gone."""
        with open(self._folder / "agent.log", "ab") as log:
            subprocess.run(
                [sys.executable, "-I", "-S", self._run, "remove-containers", self._folder],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=_END_S,
                check=False,
            )

    def _let_go(self) -> None:
        """Our folder is in use no more."""
        with self._guard:
            held, self._held = self._held, -1
        if held >= 0:
            os.close(held)

    def _watch_lease(self) -> None:
        while time.monotonic() - self._asked_s < self._lease_s:
            time.sleep(min(1.0, self._lease_s))
        self._leave()

    def _leave(self) -> None:
        """End this process, which is the actor's own: the keeper's stdin goes with it."""
        os._exit(0)


def _unpack(code: bytes, folder: Path) -> None:
    """Put the node's code there. It appears whole or not at all."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent))
    with zipfile.ZipFile(io.BytesIO(code)) as archive:
        archive.extractall(draft)
    try:
        draft.rename(folder)
    except OSError:  # another replica was faster
        shutil.rmtree(draft)
