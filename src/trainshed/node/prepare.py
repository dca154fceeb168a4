"""Getting a node ready for a replica: the runtime, and the job's packages. A process of its own, below the keeper.

What is made here is kept on the node for the replicas to come, in the same folders and by the same names as a server
keeps its own: `runtimes/KEY`, `packages/DIGEST`. Each appears whole or not at all, and is made once.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys

from . import builds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def prepare(folder: str, order: dict[str, Any], into: str) -> int:
    """Do so for an order, in the keeper's folder. 1: it can't be; the reason is on stderr.

    What was found or made is written into the file `into`.
    """
    if order.get("container"):
        from . import contained, images  # late, as all that most replicas don't need

        contained.clear_strays(order)
        contained.write_spec(folder, order, lambda text: text)
        return images.prepare(folder) or _keep(into, order["python"], "")
    site = ""
    try:
        python = builds.ensure(os.path.join(order["cache"], "runtimes"), order["runtime"], lambda: _uv(order), _say)
        if order["packages"]:
            site = _site(order, python)
            if not _install(folder, order, python, site):
                return 1
    except (builds.CannotBuild, OSError) as exc:
        sys.stderr.write("%s\n" % exc)
        return 1
    return _keep(into, python, site)


def _keep(into: str, python: str, site: str) -> int:
    with open(into + ".new", "w") as out:
        json.dump({"python": python, "site": site}, out)
    os.rename(into + ".new", into)
    return 0


def _uv(order: dict[str, Any]) -> str:
    return builds.find_uv(order["cache"], _say)


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
    from . import packages
    from .fetch import CannotFetch, fetch_all

    try:
        fetched = fetch_all(order["packages"], order["kit"], os.path.join(order["cache"], "fetched"), _say)
    except CannotFetch as exc:
        sys.stderr.write("%s\n" % exc)
        return False
    with open(os.path.join(folder, "spec.json"), "w") as out:
        json.dump({"python": python, "uv": _uv(order), "site": site, "packages": fetched}, out)
    return packages.install(folder) == 0


def _say(line: str) -> None:
    sys.stdout.write("%s\n" % line)
    sys.stdout.flush()
