"""Sets up a node for a replica: the runtime, the job's packages, or the files of the version to serve.

Runs as a child of the agent. The results stay on the node for later replicas, in the layout of a server:
`runtimes/KEY`, `packages/DIGEST`, `models/DIGEST`. Each appears complete or not at all, and is made once. Orphaned
workspaces are removed first.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys

from ..failure import INSTALLATION, NODE_SETUP_FAILED, write_failure
from ..files import write_file
from . import runtime_build, workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


def prepare_node(folder: str, spec: dict[str, Any], result_file: str) -> int:
    """Set up the node for `spec` in the agent's folder. Returns 1 on failure, with the reason on stderr
    and in `install.failure`.

    Writes the paths of interpreter, packages and model to `result_file`.
    """
    workspace.sweep(spec["cache"])
    if spec.get("container"):
        from ..containers import (
            images,
            replica,  # late: most replicas need no containers
        )

        replica.remove_orphaned_containers(spec)
        replica.write_spec(folder, spec, lambda text: text)
        return images.prepare_images(folder) or _write_result(result_file, spec["python"], "", "")
    site = model = ""
    try:
        python = runtime_build.ensure(
            os.path.join(spec["cache"], "runtimes"), spec["runtime"], lambda: _find_uv(spec), _log
        )
        if spec["packages"]:
            site = _site_folder(spec, python)
            if not _install(folder, spec, python, site):
                return 1
        if spec.get("files"):
            model = _fetch_model(spec)
    except (runtime_build.NodeSetupError, OSError) as exc:
        write_failure(folder, INSTALLATION, {"cause": NODE_SETUP_FAILED, "message": str(exc)})
        sys.stderr.write("%s\n" % exc)
        return 1
    return _write_result(result_file, python, site, model)


def _write_result(result_file: str, python: str, site: str, model: str) -> int:
    write_file(result_file, json.dumps({"python": python, "site": site, "model": model}).encode())
    return 0


def _find_uv(spec: dict[str, Any]) -> str:
    return runtime_build.find_uv(spec["cache"], _log)


def _site_folder(spec: dict[str, Any], python: str) -> str:
    """Folder in which these packages are installed for this runtime on this node."""
    digest = hashlib.sha256(python.encode())
    for package in spec["packages"]:
        digest.update(("\n%s %s" % (package["uri"].rpartition("/")[2], package["sha256"])).encode())
    return os.path.join(spec["cache"], "packages", digest.hexdigest()[:32])


def _install(folder: str, spec: dict[str, Any], python: str, site: str) -> bool:
    """Install the packages. Returns False if that fails; then the reason is in the output."""
    if os.path.isdir(site):
        for package in spec["packages"]:
            _log("The package is installed already: %s" % package["uri"])
        return True
    from .. import package_install
    from .fetch import fetch_all

    packages = fetch_all(spec["packages"], spec["credentials"], os.path.join(spec["cache"], "fetched"), _log)
    with open(os.path.join(folder, "spec.json"), "w") as out:
        json.dump({"python": python, "uv": _find_uv(spec), "site": site, "packages": packages}, out)
    return package_install.install(folder) == 0


def _fetch_model(spec: dict[str, Any]) -> str:
    """Folder with the files of the version, which are downloaded if missing. All hosts of the version share it."""
    folder = workspace.model_folder(spec["cache"], spec["files"])
    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    with open(folder + ".lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(folder):
            _log("Downloading the files of the model.")
            draft = folder + ".draft"
            shutil.rmtree(draft, ignore_errors=True)
            from .fetch import fetch_files

            fetch_files(spec["files"], spec["credentials"], draft)
            os.rename(draft, folder)
        os.utime(folder)  # marks it as in use
    return folder


def _log(line: str) -> None:
    sys.stdout.write("%s\n" % line)
    sys.stdout.flush()


TYPE_CHECKING = False


def substitution(values: dict[str, str], addresses: dict[str, list[str]]) -> Callable[[str], str]:
    """Returns a function that replaces placeholders: values that only the node of a replica knows.

    They are in its environment, arguments and files. `@host:NAME@` and `@port:NAME@` are the address of replica NAME,
    which `addresses` has by name; a port that is a whole JSON string becomes a number. `values` has all others, such
    as `@node@`.
    """
    table = [("@%s@" % placeholder, value) for placeholder, value in values.items()]
    for name, (host, port) in addresses.items():
        table += [('"@port:%s@"' % name, port), ("@port:%s@" % name, port), ("@host:%s@" % name, host)]

    def substitute(text: str) -> str:
        if "@" in text:
            for placeholder, value in table:
                text = text.replace(placeholder, value)
        return text

    return substitute
