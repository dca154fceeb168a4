"""Ships the code that runs beside user code: one folder a digest, with `run.py` as its entry point."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from importlib import resources
from pathlib import Path

import orjson

from trainshed.node.files import sync_folder, write_file

SHIPPED = {"node": "trainshed_node", "serving": "trainshed_serving", "engines/ray/bridge": "trainshed_bridge"}
_BOOT_FILE = ".boot"  #: the boot in which Python compiled what is there


_RUN = """\
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def run(words):
    from trainshed_node.process.open_files import restore_limit

    restore_limit()
    if words[:1] == ["reap"]:
        from trainshed_node.process.reaper import run_reaped

        cell, listener = take_cell()
        secrets, mask = take_secrets()
        status = run_reaped(0, words[1], lambda: run_below_reaper(words[3:]), int(words[2]), cell, listener, mask)
        if secrets is not None:
            secrets.remove()
        if words[3] == "container-host" and status != 0:  # one that ended well has seen to its container itself
            from trainshed_serving.container.host import remove_container

            remove_container(words[4])
        return status
    if words[:1] in (["host"], ["container-host"], ["reference"], ["predict"]):
        from trainshed_serving.main import main
    elif words[:1] == ["bridge"]:
        from trainshed_bridge.main import main
    else:
        from trainshed_node.main import main
    return main(words)


def take_cell():
    if "TRAINSHED_CELL" not in os.environ:
        return None, -1
    from trainshed_node.sandbox.reaped import take_cell

    return take_cell()


def take_secrets():
    if "TRAINSHED_SECRETS_FOR" not in os.environ:
        return None, None
    from trainshed_node.supervisor.secrets import MaskedOutput, take_secrets

    secrets = take_secrets()
    return secrets, MaskedOutput(secrets.mask)


def run_below_reaper(words):
    if words[0] not in ("host", "container-host", "replica-proxy"):  # these three report on stdout
        os.dup2(2, 1)
    return run(words)


status = run(sys.argv[1:])
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)  # taking the interpreter apart takes longer than the work
"""


def ship(to: Path) -> Path:
    """Write the shipped code into a folder below `to` that is named by its content, durably.

    Python compiles it on first use, and anew after each boot: it does not sync what it compiled, so a power cut can
    leave bytecode that looks complete and is not.
    """
    sources = {"run.py": _RUN.encode()}
    for package, name in SHIPPED.items():
        sources |= _sources(package, name)
    digest = hashlib.sha256(orjson.dumps([(name, sources[name].hex()) for name in sorted(sources)])).hexdigest()[:16]
    folder = to / digest
    if folder.is_dir():
        _drop_bytecode_of_another_boot(folder)
        return folder
    to.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{digest}.", dir=to))
    for name, content in sources.items():
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        _write_synced(draft / name, content)
    _write_synced(draft / _BOOT_FILE, boot_id().encode())
    for parent, _, _ in os.walk(draft):
        sync_folder(parent)
    try:
        draft.rename(folder)
    except OSError as exc:
        shutil.rmtree(draft)
        if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # else another server was faster
            raise
    sync_folder(to)
    return folder


def boot_id() -> str:
    """Tells boots of the machine apart."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _write_synced(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _drop_bytecode_of_another_boot(folder: Path) -> None:
    stamp, boot = folder / _BOOT_FILE, boot_id()
    if stamp.exists() and stamp.read_text() == boot:
        return
    for compiled in folder.rglob("__pycache__/*.pyc"):
        compiled.unlink(missing_ok=True)
    write_file(stamp, boot.encode())


def _sources(package: str, name: str) -> dict[str, bytes]:
    """The modules of a package and its sub-packages, by their paths in the shipped folder."""
    root = Path(str(resources.files("trainshed").joinpath(package)))
    return {f"{name}/{path.relative_to(root).as_posix()}": path.read_bytes() for path in root.rglob("*.py")}
