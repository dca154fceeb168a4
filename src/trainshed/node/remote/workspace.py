"""Workspaces of replicas on a node, and the removal of orphaned ones.

A lost node keeps the workspaces of its replicas. They are removed when something starts there again. A workspace is in
use while a process holds the lock on its spec file, or its agent holds the replica's lock. The kernel releases both
when their holders exit, however they exit. Nodes that share a cache have a folder each and clean up only their own.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import tempfile
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

SPEC_FILE = "agent.json"  #: in each workspace: the spec of its agent
MODEL_RETENTION_S = 7 * 86400.0  #: of model files with which no host is started
_LOCK = ".lock"
_NODE_LOCK = ".lock"  #: held to create or remove workspaces of this node
_INCARNATION = re.compile(r"\d+\.\d+")  #: names of workspaces; no folder above them matches


def replica_folder(cache: str, gang: str, replica: str) -> str:
    """Folder of a replica's workspaces on this node."""
    return os.path.join(_node_folder(cache), *gang.split("/"), replica)


def model_folder(cache: str, files: list[dict[str, Any]]) -> str:
    """Folder of a version's files, named by content."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(("%d %s %s\n" % (len(file["name"]), file["name"], file["sha256"])).encode())
    return os.path.join(cache, "models", digest.hexdigest()[:32])


def lock_of(replica: str) -> str:
    """Path of the lock that a replica's agent holds. `replica` is the replica's folder."""
    return replica + _LOCK


def create(folder: str, spec: dict[str, Any]) -> int:
    """Create a workspace with its spec. It is in use until the returned descriptor is closed."""
    with _node_lock(spec["cache"]):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        draft = os.path.join(folder, "." + SPEC_FILE)
        lock = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(lock, "wb", closefd=False) as file:
            file.write(json.dumps(spec).encode())
        os.rename(draft, os.path.join(folder, SPEC_FILE))
    return lock


def remove(cache: str, folder: str) -> None:
    """Remove the workspace of an ended replica, and parent folders that are empty then."""
    shutil.rmtree(folder, ignore_errors=True)
    with _node_lock(cache):
        parent = os.path.dirname(folder)
        while parent != _node_folder(cache) and _remove_if_empty(parent):
            _remove_lock(lock_of(parent))
            parent = os.path.dirname(parent)


def sweep(cache: str) -> None:
    """Remove workspaces and model files of this node that are not in use."""
    with _node_lock(cache):
        _sweep(_node_folder(cache))
        _sweep_models(cache)


def _node_folder(cache: str) -> str:
    return os.path.join(cache, "replicas", socket.gethostname())


@contextlib.contextmanager
def _node_lock(cache: str) -> Iterator[None]:
    os.makedirs(_node_folder(cache), mode=0o700, exist_ok=True)
    with open(os.path.join(_node_folder(cache), _NODE_LOCK), "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(folder: str) -> None:
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.islink(path) or not os.path.isdir(path):
            continue
        if not _INCARNATION.fullmatch(name):
            _sweep(path)
            _remove_if_empty(path)
        elif _is_free(os.path.join(path, SPEC_FILE)) and _is_free(lock_of(folder)) and _remove_containers(path):
            shutil.rmtree(path, ignore_errors=True)
    for name in os.listdir(folder):
        if name.endswith(_LOCK):
            _remove_lock(os.path.join(folder, name))


def _remove_containers(folder: str) -> bool:
    """Remove containers of a workspace. Returns True if none is left."""
    from ..containers.replica import remove_containers  # late: most nodes need no containers

    try:
        return remove_containers(folder) is None
    except ValueError:  # the node was lost while the file was written, so there are no containers yet
        return True


def _sweep_models(cache: str) -> None:
    """Remove models that no host uses, on any node that shares the cache, and that none used recently."""
    models = os.path.dirname(model_folder(cache, []))
    used = {os.path.basename(model_folder(cache, files)) for files in _files_of_hosts(cache)}
    for name in os.listdir(models) if os.path.isdir(models) else ():
        digest = name.partition(".")[0]
        with contextlib.suppress(FileNotFoundError):  # another node was faster
            if digest not in used and time.time() - os.stat(os.path.join(models, name)).st_mtime > MODEL_RETENTION_S:
                _remove(os.path.join(models, name), digest)


def _remove(path: str, digest: str) -> None:
    if not os.path.isdir(path):
        os.unlink(path)
        return
    trash = tempfile.mkdtemp(prefix=digest + ".", dir=os.path.dirname(path))
    os.rename(path, trash)  # a partly removed folder must not look complete
    shutil.rmtree(trash, ignore_errors=True)


def _files_of_hosts(cache: str) -> Iterator[list[dict[str, Any]]]:
    for folder, subfolders, names in os.walk(os.path.dirname(_node_folder(cache))):
        if SPEC_FILE not in names:
            continue
        del subfolders[:]
        try:
            with open(os.path.join(folder, SPEC_FILE), "rb") as file:
                spec = json.loads(file.read().decode())
        except (FileNotFoundError, ValueError):  # another node removes it, or was lost while writing it
            continue
        yield spec.get("files", [])


def _is_free(path: str) -> bool:
    """Whether no process holds the lock on a file."""
    try:
        with open(path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True


def _remove_lock(path: str) -> None:
    """Remove the lock of a replica without workspaces. No process waits for it, because each
    that waits has a workspace."""
    if not os.path.isdir(path[: -len(_LOCK)]) and os.path.isfile(path) and _is_free(path):
        os.unlink(path)


def _remove_if_empty(folder: str) -> bool:
    """Remove a folder if it is empty. Returns whether it is gone."""
    try:
        os.rmdir(folder)
    except OSError:
        return False
    return True
