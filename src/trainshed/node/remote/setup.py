"""Getting a node ready for a replica: the runtime, the job's packages, the files of the version that it is to serve.

A process of its own, below the keeper. What is made here is kept on the node for the replicas to come, in the same
folders and by the same names as a server keeps its own: `runtimes/KEY`, `packages/DIGEST`, `models/DIGEST`. Each
appears whole or not at all, and is made once. What is left of replicas that nobody saw to the end of is removed first.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys

from . import runtime_build, workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def prepare_node(folder: str, order: dict[str, Any], into: str) -> int:
    """Do so for an order, in the keeper's folder. 1: it can't be; the reason is on stderr.

    What was found or made is written into the file `into`.
    """
    workspace.sweep(order["cache"])
    if order.get("container"):
        from ..containers import (
            images,
            replica,  # late, as all that most replicas don't need
        )

        replica.remove_orphaned_containers(order)
        replica.write_spec(folder, order, lambda text: text)
        return images.prepare_images(folder) or _keep(into, order["python"], "", "")
    site = model = ""
    try:
        python = runtime_build.ensure(
            os.path.join(order["cache"], "runtimes"), order["runtime"], lambda: _uv(order), _say
        )
        if order["packages"]:
            site = _site(order, python)
            if not _install(folder, order, python, site):
                return 1
        if order.get("files"):
            model = _model(order)
    except (runtime_build.NodeSetupError, OSError) as exc:
        sys.stderr.write("%s\n" % exc)
        return 1
    return _keep(into, python, site, model)


def _keep(into: str, python: str, site: str, model: str) -> int:
    with open(into + ".new", "w") as out:
        json.dump({"python": python, "site": site, "model": model}, out)
    os.rename(into + ".new", into)
    return 0


def _uv(order: dict[str, Any]) -> str:
    return runtime_build.find_uv(order["cache"], _say)


def _site(order: dict[str, Any], python: str) -> str:
    """Where these packages are installed for this runtime, on this node."""
    total = hashlib.sha256(python.encode())
    for each in order["packages"]:
        total.update(("\n%s %s" % (each["uri"].rpartition("/")[2], each["sha256"])).encode())
    return os.path.join(order["cache"], "packages", total.hexdigest()[:32])


def _install(folder: str, order: dict[str, Any], python: str, site: str) -> bool:
    """False: it can't be, and the reason was said."""
    if os.path.isdir(site):
        for each in order["packages"]:
            _say("The package is installed already: %s" % each["uri"])
        return True
    from .. import package_install
    from .fetch import fetch_all

    fetched = fetch_all(order["packages"], order["kit"], os.path.join(order["cache"], "fetched"), _say)
    with open(os.path.join(folder, "spec.json"), "w") as out:
        json.dump({"python": python, "uv": _uv(order), "site": site, "packages": fetched}, out)
    return package_install.install(folder) == 0


def _model(order: dict[str, Any]) -> str:
    """The folder with the files of the version, which are fetched if they are not there. One copy for all its hosts."""
    folder = workspace.model_folder(order["cache"], order["files"])
    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    with open(folder + ".lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(folder):
            _say("Downloading the files of the model.")
            draft = folder + ".draft"
            shutil.rmtree(draft, ignore_errors=True)
            from .fetch import fetch_files

            fetch_files(order["files"], order["kit"], draft)
            os.rename(draft, folder)
        os.utime(folder)  # it is in use
    return folder


def _say(line: str) -> None:
    sys.stdout.write("%s\n" % line)
    sys.stdout.flush()
