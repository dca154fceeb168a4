"""JupyterLab on this machine: its environment, its folder, and the process that runs in the background.

Whether it runs is what the kernel says: the process holds a lock on `notebook/lock` of the state folder, which it got
from the one that started it, and which is free from the moment it is gone. While it is held, the pid in
`notebook/server.json` is the pid of that process and of no other.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import trainshed
from trainshed.config import Home
from trainshed.errors import CannotProceedError
from trainshed.runtimes.catalogue import NOTEBOOK
from trainshed.runtimes.environments import Runtimes
from trainshed.runtimes.progress import ProgressCallback
from trainshed.runtimes.uv import find_uv

PORT = 8888
HOST = "127.0.0.1"
_START_S = 180.0  #: a busy machine takes its time for the first import
_STOP_S = 20.0
_LOOK_S = 0.1
_OTHER_PORTS = 50  #: that are tried if the usual one is taken
#: of the user's own Jupyter and Python, which this one is apart from
_FOREIGN = ("JUPYTER_TOKEN", "JUPYTER_CONFIG_PATH", "JUPYTER_PATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook:
    """A JupyterLab that runs. `url` has its token in it, and opens it for whoever has it."""

    url: str
    pid: int
    folder: str

    @property
    def address(self) -> str:
        """The URL without the token, for lists."""
        return self.url.partition("?")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookSpec:
    """What to start: with which Python, on which folder, at which port, in which environment."""

    python: Path
    folder: Path
    port: int | None  #: None: the usual one if it is free, else another
    env: Mapping[str, str]
    terminal: tuple[str, ...]  #: the command that its terminals run


def interpreter(home: Home, progress: ProgressCallback) -> Path:
    """The Python of the notebook's environment, which is built first if it is not there."""
    home.create()
    catalogue = {NOTEBOOK.name: NOTEBOOK}
    return Runtimes(home.runtimes, find_uv(), catalogue=catalogue).ensure(NOTEBOOK.name, progress)


def running(home: Home) -> Notebook | None:
    """The notebook of this state folder, if it runs."""
    try:
        with open(home.notebook / "lock", "rb") as lock:
            if _taken(lock.fileno(), fcntl.LOCK_SH):
                return None
        return Notebook(**json.loads((home.notebook / "server.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):  # never started, or not yet ready
        return None


def check_port(port: int) -> None:
    """`CannotProceedError` if it can't listen there."""
    try:
        with socket.create_server((HOST, port)):
            return
    except OSError as exc:
        raise CannotProceedError(f"Port {port} can't be used: {exc.strerror}. Choose another one with --port.") from exc


def copy_samples(source: Path, folder: Path) -> list[str]:
    """Copy the sample notebooks to a folder and return the names of those that are new. Nothing is written over."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        new = [path for path in sorted(source.glob("*.ipynb")) if not os.path.lexists(folder / path.name)]
        for path in new:
            with open(path, "rb") as sample, open(folder / path.name, "xb") as copy:  # never through a link
                shutil.copyfileobj(sample, copy)
    except OSError as exc:
        raise CannotProceedError(
            f"The folder {folder} can't be used for notebooks: {exc.strerror}. Choose one with --dir."
        ) from exc
    return [path.name for path in new]


def start(home: Home, order: NotebookSpec) -> Notebook:
    """Start it, on its own from then on, and wait until it answers.

    `CannotProceedError`, with the place of its log, if not.
    """
    state = home.notebook
    state.mkdir(mode=0o700, exist_ok=True)
    state.chmod(0o700)
    token = secrets.token_urlsafe(32)
    with _locked(state / "lock") as lock:
        (state / "server.json").unlink(missing_ok=True)
        _configure(state, order, token)
        process = _spawn(state, order, lock)
        try:
            port = _await_answer(process, token, state)
            found = Notebook(url=f"http://{HOST}:{port}/lab?token={token}", pid=process.pid, folder=str(order.folder))
            _write(state / "server.json", json.dumps(asdict(found)))
        except BaseException:  # Ctrl-C too: nobody would find it any more
            process.kill()
            process.wait()
            raise
    return found


def stop(home: Home) -> bool:
    """End it with its kernels; False if it does not run."""
    if (found := running(home)) is None:
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        os.kill(found.pid, number)
        deadline = time.monotonic() + _STOP_S
        while time.monotonic() < deadline:
            if running(home) is None:
                (home.notebook / "server.json").unlink(missing_ok=True)
                return True
            time.sleep(_LOOK_S)
    raise CannotProceedError(f"The notebook (process {found.pid}) does not end.")


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _taken(lock, fcntl.LOCK_EX):
            raise CannotProceedError("A notebook is being started by someone else. Try again in a moment.")
        yield lock
    finally:
        os.close(lock)  # the notebook has it too, and keeps it


def _taken(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _configure(state: Path, order: NotebookSpec, token: str) -> None:
    """Files for Jupyter: where to listen, the token, and that it calls nobody. The token is in no command line."""
    server = {
        "ServerApp": {
            "ip": HOST,
            "port": order.port or PORT,
            "port_retries": 0 if order.port else _OTHER_PORTS,
            "root_dir": str(order.folder),
            "open_browser": False,
            "allow_remote_access": False,
            "allow_root": os.geteuid() == 0,
            "terminado_settings": {"shell_command": list(order.terminal)},
        },
        "IdentityProvider": {"token": token},
    }
    lab = {
        "LabApp": {
            "extension_manager": "readonly",  # or it asks PyPI for extensions
            "check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
            "news_url": None,
        }
    }
    quiet = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}
    config = state / "config"
    (config / "labconfig").mkdir(parents=True, exist_ok=True)
    _write(config / "jupyter_server_config.json", json.dumps(server))
    _write(config / "jupyter_lab_config.json", json.dumps(lab))
    _write(config / "labconfig" / "default_setting_overrides.json", json.dumps(quiet))


def environment(state: Path, env: Mapping[str, str]) -> dict[str, str]:
    """`env` with this very Trainshed to import, and with Jupyter's files in the state folder and nowhere else."""
    modules = state / "modules"
    modules.mkdir(parents=True, exist_ok=True)
    here = Path(trainshed.__file__).parent
    if not (modules / "trainshed").is_symlink() or (modules / "trainshed").resolve() != here.resolve():
        (modules / "trainshed").unlink(missing_ok=True)
        (modules / "trainshed").symlink_to(here)
    kept = {name: value for name, value in env.items() if name not in _FOREIGN}
    return kept | {
        "PYTHONPATH": str(modules),
        "JUPYTER_CONFIG_DIR": str(state / "config"),
        "JUPYTER_DATA_DIR": str(state / "data"),
        "JUPYTER_RUNTIME_DIR": str(state / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(state / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(state / "workspaces"),
        "IPYTHONDIR": str(state / "ipython"),
        "MPLCONFIGDIR": str(state / "matplotlib"),
    }


def _spawn(state: Path, order: NotebookSpec, lock: int) -> subprocess.Popen[bytes]:
    log = os.open(state / "log", os.O_WRONLY | os.O_TRUNC | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            [str(order.python), "-m", "jupyterlab"],
            cwd=order.folder,
            env=environment(state, order.env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(lock,),
            start_new_session=True,
        )
    except OSError as exc:
        raise CannotProceedError(f"JupyterLab can't be started in {order.folder}: {exc.strerror}.") from exc
    finally:
        os.close(log)


def _await_answer(process: subprocess.Popen[bytes], token: str, state: Path) -> int:
    """The port at which it answers."""
    deadline, log = time.monotonic() + _START_S, state / "log"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise CannotProceedError(f"JupyterLab ended before it was ready. Its log says why: {log}")
        port = _listens_at(state, process.pid)
        if port is not None and _answers(port, token):
            return port
        time.sleep(_LOOK_S)
    raise CannotProceedError(f"JupyterLab was not ready within {_START_S:.0f} seconds and was stopped. Its log: {log}")


def _listens_at(state: Path, pid: int) -> int | None:
    """What Jupyter says of itself, once it listens."""
    try:
        return int(json.loads((state / "runtime" / f"jpserver-{pid}.json").read_text())["port"])
    except (FileNotFoundError, ValueError):  # not yet, or half written
        return None


def _answers(port: int, token: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request("GET", "/api/status", headers={"Authorization": f"token {token}"})
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _write(path: Path, text: str) -> None:
    """A file that this user alone can read. A reader sees the old one or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    fresh.rename(path)
