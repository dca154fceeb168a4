"""JupyterLab on this machine: its environment, its folder, and its background process.

A lock tells whether it runs: the process holds `notebook/lock` of the state folder, which it inherits from its starter,
and the kernel releases the lock when the process is gone. While the lock is held, the pid in `notebook/server.json` is
the pid of that process and of no other.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import trainshed
from trainshed.config import Home
from trainshed.errors import CannotProceedError
from trainshed.local.interpreters import links_of
from trainshed.local.kernels import write_specs
from trainshed.node.files import write_file
from trainshed.runtimes.catalogue import NOTEBOOK
from trainshed.runtimes.environments import Runtimes
from trainshed.runtimes.progress import ProgressCallback
from trainshed.runtimes.uv import find_uv

PORT = 8888
HOST = "127.0.0.1"
_START_TIMEOUT_S = 180.0  #: the first import is slow on a busy machine
_KERNEL_START_TIMEOUT_S = 1800  #: a kernel is built at its first start
_STOP_TIMEOUT_S = 20.0
_CHECK_INTERVAL_S = 0.1
_MAX_PORT_RETRIES = 50  #: tried if the default is taken
#: variables of the user's own Jupyter and Python, from which this one is isolated
_FOREIGN_VARIABLES = (
    "JUPYTER_TOKEN",
    "JUPYTER_CONFIG_PATH",
    "JUPYTER_PATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook:
    """A running JupyterLab. `url` contains its token and grants access."""

    url: str
    pid: int
    folder: str

    @property
    def address(self) -> str:
        """The URL without the token, for lists."""
        return self.url.partition("?")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookSpec:
    """What to start: interpreter, folder, port, environment."""

    python: Path
    folder: Path
    port: int | None  #: None: the default if it is free, else another
    env: Mapping[str, str]
    terminal: tuple[str, ...]  #: the command that its terminals run


def interpreter(home: Home, progress: ProgressCallback) -> Path:
    """Return the Python of the notebook's environment. Builds it if it is missing."""
    home.create()
    catalogue = {NOTEBOOK.name: NOTEBOOK}
    runtimes = Runtimes(home.runtimes, find_uv(), catalogue=catalogue, find_links=links_of(home))
    return runtimes.ensure(NOTEBOOK.name, progress)


def running(home: Home) -> Notebook | None:
    """Return the notebook of this state folder. Returns None if it does not run."""
    try:
        with open(home.notebook / "lock", "rb") as lock:
            if _try_lock(lock.fileno(), fcntl.LOCK_SH):
                return None
        return Notebook(**json.loads((home.notebook / "server.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):  # never started, or not ready yet
        return None


def copy_samples(source: Path, folder: Path) -> list[str]:
    """Copy the sample notebooks to a folder. Returns the names of the new ones. Overwrites nothing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        new = [path for path in sorted(source.glob("*.ipynb")) if not os.path.lexists(folder / path.name)]
        for path in new:
            with open(path, "rb") as sample, open(folder / path.name, "xb") as copy:  # never through a symbolic link
                shutil.copyfileobj(sample, copy)
    except OSError as exc:
        raise CannotProceedError(
            f"The folder {folder} can't be used for notebooks: {exc.strerror}. Choose one with --dir."
        ) from exc
    return [path.name for path in new]


def start(home: Home, spec: NotebookSpec) -> Notebook:
    """Start it in the background and wait until it responds.

    Raises `CannotProceedError`, with the path of its log, if it does not.
    """
    state = home.notebook
    state.mkdir(mode=0o700, exist_ok=True)
    state.chmod(0o700)
    token = secrets.token_urlsafe(32)
    with _locked(state / "lock") as lock:
        (state / "server.json").unlink(missing_ok=True)
        _configure(state, spec, token)
        write_specs(state / "data")
        process = _spawn(state, spec, lock)
        try:
            port = _wait_until_ready(process, token, state)
            notebook = Notebook(url=f"http://{HOST}:{port}/lab?token={token}", pid=process.pid, folder=str(spec.folder))
            write_file(state / "server.json", json.dumps(asdict(notebook)).encode())
        except BaseException:  # Ctrl-C too: nobody would find the process any more
            process.kill()
            process.wait()
            raise
    return notebook


def stop(home: Home) -> bool:
    """Stop it with its kernels. Returns False if it does not run."""
    if (notebook := running(home)) is None:
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        os.kill(notebook.pid, number)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while time.monotonic() < deadline:
            if running(home) is None:
                (home.notebook / "server.json").unlink(missing_ok=True)
                return True
            time.sleep(_CHECK_INTERVAL_S)
    raise CannotProceedError(f"The notebook (process {notebook.pid}) does not end.")


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _try_lock(lock, fcntl.LOCK_EX):
            raise CannotProceedError("A notebook is being started by someone else. Try again in a moment.")
        yield lock
    finally:
        os.close(lock)  # the notebook inherited it and keeps it


def _try_lock(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _configure(state: Path, spec: NotebookSpec, token: str) -> None:
    """Write Jupyter's files: where to listen, the token, no network calls. The token is in no command line."""
    server = {
        "ServerApp": {
            "ip": HOST,
            "port": spec.port or PORT,
            "port_retries": 0 if spec.port else _MAX_PORT_RETRIES,
            "root_dir": str(spec.folder),
            "open_browser": False,
            "allow_remote_access": False,
            "allow_root": os.geteuid() == 0,
            "terminado_settings": {"shell_command": list(spec.terminal)},
        },
        "IdentityProvider": {"token": token},
        "MappingKernelManager": {"kernel_info_timeout": _KERNEL_START_TIMEOUT_S},
    }
    lab = {
        "LabApp": {
            "extension_manager": "readonly",  # or it looks up extensions in the package index
            "check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
            "news_url": None,
        }
    }
    overrides = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}
    config = state / "config"
    (config / "labconfig").mkdir(parents=True, exist_ok=True)
    write_file(config / "jupyter_server_config.json", json.dumps(server).encode())
    write_file(config / "jupyter_lab_config.json", json.dumps(lab).encode())
    write_file(config / "labconfig" / "default_setting_overrides.json", json.dumps(overrides).encode())


def environment(state: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` with this Trainshed importable, and with Jupyter's files only in the state folder.

    What `env` has in PYTHONPATH is the shell's own, not the user's.
    """
    modules = state / "modules"
    modules.mkdir(parents=True, exist_ok=True)
    package = Path(trainshed.__file__).parent
    if not (modules / "trainshed").is_symlink() or (modules / "trainshed").resolve() != package.resolve():
        (modules / "trainshed").unlink(missing_ok=True)
        (modules / "trainshed").symlink_to(package)
    inherited = {name: value for name, value in env.items() if name not in _FOREIGN_VARIABLES}
    return inherited | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(modules), env.get("PYTHONPATH")))),
        "JUPYTER_CONFIG_DIR": str(state / "config"),
        "JUPYTER_DATA_DIR": str(state / "data"),
        "JUPYTER_RUNTIME_DIR": str(state / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(state / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(state / "workspaces"),
        "IPYTHONDIR": str(state / "ipython"),
        "MPLCONFIGDIR": str(state / "matplotlib"),
    }


def _spawn(state: Path, spec: NotebookSpec, lock: int) -> subprocess.Popen[bytes]:
    log = os.open(state / "log", os.O_WRONLY | os.O_TRUNC | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            [str(spec.python), "-m", "jupyterlab"],
            cwd=spec.folder,
            env=environment(state, spec.env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(lock,),
            start_new_session=True,
        )
    except OSError as exc:
        raise CannotProceedError(f"JupyterLab can't be started in {spec.folder}: {exc.strerror}.") from exc
    finally:
        os.close(log)


def _wait_until_ready(process: subprocess.Popen[bytes], token: str, state: Path) -> int:
    """Return the port at which it responds."""
    deadline, log = time.monotonic() + _START_TIMEOUT_S, state / "log"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise CannotProceedError(f"JupyterLab ended before it was ready. Its log says why: {log}")
        port = _port_of(state, process.pid)
        if port is not None and _responds(port, token):
            return port
        time.sleep(_CHECK_INTERVAL_S)
    raise CannotProceedError(
        f"JupyterLab was not ready within {_START_TIMEOUT_S:.0f} seconds and was stopped. Its log: {log}"
    )


def _port_of(state: Path, pid: int) -> int | None:
    """Return the port in Jupyter's own file, which it writes once it listens. Returns None before."""
    try:
        return int(json.loads((state / "runtime" / f"jpserver-{pid}.json").read_text())["port"])
    except (FileNotFoundError, ValueError):  # not there yet, or half written
        return None


def _responds(port: int, token: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request("GET", "/api/status", headers={"Authorization": f"token {token}"})
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
