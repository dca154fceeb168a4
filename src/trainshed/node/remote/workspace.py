"""The folders that replicas have on a machine of a cluster, and what is left there of those whose end nobody saw to.

A machine that is lost keeps what its replicas wrote. When something is started there again, it is removed. A folder is
in use for as long as someone holds the lock on the order in it, or its keeper the lock of the replica: the kernel lets
go of both when they end, however they do. Machines that share a cache have a folder each, and see to that alone.
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

SPEC_FILE = "order.json"  #: in the folder of each copy of a replica: what its keeper is to do
MODELS_S = 7 * 86400.0  #: for which the files of a version are kept that no host is started with
_LOCK = ".lock"
_GUARD = ".guard"  #: whoever holds it is alone in making and removing folders of this machine
_COPY = re.compile(r"\d+\.\d+")  #: how the folders of copies are called, and nothing above them is


def replica_folder(cache: str, gang: str, replica: str) -> str:
    """Where the copies of a replica are on this machine."""
    return os.path.join(_own(cache), *gang.split("/"), replica)


def model_folder(cache: str, files: list[dict[str, Any]]) -> str:
    """Where the files of a version are: a folder for each content."""
    total = hashlib.sha256()
    for each in files:
        total.update(("%d %s %s\n" % (len(each["name"]), each["name"], each["sha256"])).encode())
    return os.path.join(cache, "models", total.hexdigest()[:32])


def lock_of(replica: str) -> str:
    """What the keeper of a replica holds, by the replica's folder."""
    return replica + _LOCK


def create(folder: str, order: dict[str, Any]) -> int:
    """Make the folder of a copy, with its order in it. It is in use until the file that this returns is closed."""
    with _guard(order["cache"]):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        draft = os.path.join(folder, "." + SPEC_FILE)
        held = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
        with open(held, "wb", closefd=False) as file:
            file.write(json.dumps(order).encode())
        os.rename(draft, os.path.join(folder, SPEC_FILE))
    return held


def remove(cache: str, folder: str) -> None:
    """Remove the folder of a copy that has ended, and those above it that are empty then."""
    shutil.rmtree(folder, ignore_errors=True)
    with _guard(cache):
        above = os.path.dirname(folder)
        while above != _own(cache) and _removed(above):
            _remove_lock(lock_of(above))
            above = os.path.dirname(above)


def sweep(cache: str) -> None:
    """Remove what nobody uses any more: of replicas that were on this machine, and of models."""
    with _guard(cache):
        _sweep(_own(cache))
        _sweep_models(cache)


def _own(cache: str) -> str:
    return os.path.join(cache, "replicas", socket.gethostname())


@contextlib.contextmanager
def _guard(cache: str) -> Iterator[None]:
    os.makedirs(_own(cache), mode=0o700, exist_ok=True)
    with open(os.path.join(_own(cache), _GUARD), "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(folder: str) -> None:
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.islink(path) or not os.path.isdir(path):
            continue
        if not _COPY.fullmatch(name):
            _sweep(path)
            _removed(path)
        elif _is_free(os.path.join(path, SPEC_FILE)) and _is_free(lock_of(folder)) and _has_no_containers(path):
            shutil.rmtree(path, ignore_errors=True)
    for name in os.listdir(folder):
        if name.endswith(_LOCK):
            _remove_lock(os.path.join(folder, name))


def _has_no_containers(folder: str) -> bool:
    """Whether none of a copy is left. What is left is removed, if it can be."""
    from ..containers.replica import remove_containers  # late: most machines never need it

    try:
        return remove_containers(folder) is None
    except ValueError:  # the machine was lost while the note of them was written: there is none yet
        return True


def _sweep_models(cache: str) -> None:
    """Those that no copy there is was started with, on whichever machine shares the cache, nor any of late."""
    models = os.path.dirname(model_folder(cache, []))
    used = {os.path.basename(model_folder(cache, files)) for files in _files_of_hosts(cache)}
    for name in os.listdir(models) if os.path.isdir(models) else ():
        digest = name.partition(".")[0]
        with contextlib.suppress(FileNotFoundError):  # another machine was faster
            if digest not in used and time.time() - os.stat(os.path.join(models, name)).st_mtime > MODELS_S:
                _remove(os.path.join(models, name), digest)


def _remove(path: str, digest: str) -> None:
    if not os.path.isdir(path):
        os.unlink(path)
        return
    doomed = tempfile.mkdtemp(prefix=digest + ".", dir=os.path.dirname(path))
    os.rename(path, doomed)  # what is half there must not look whole
    shutil.rmtree(doomed, ignore_errors=True)


def _files_of_hosts(cache: str) -> Iterator[list[dict[str, Any]]]:
    for folder, below, names in os.walk(os.path.dirname(_own(cache))):
        if SPEC_FILE not in names:
            continue
        del below[:]
        try:
            with open(os.path.join(folder, SPEC_FILE), "rb") as file:
                order = json.loads(file.read().decode())
        except (FileNotFoundError, ValueError):  # another machine removes it, or was lost when it wrote it
            continue
        yield order.get("files", [])


def _is_free(path: str) -> bool:
    """Whether nobody holds the lock on a file."""
    try:
        with open(path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True


def _remove_lock(path: str) -> None:
    """Remove the lock of a replica that has no copies. Nobody waits for it: each who does has one."""
    if not os.path.isdir(path[: -len(_LOCK)]) and os.path.isfile(path) and _is_free(path):
        os.unlink(path)


def _removed(folder: str) -> bool:
    """Whether a folder was empty, and is gone."""
    try:
        os.rmdir(folder)
    except OSError:
        return False
    return True
