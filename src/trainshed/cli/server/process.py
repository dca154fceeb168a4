"""up, status, down, logs, serve: the server as a process on this machine."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import format_option
from trainshed.cli.toolkit.output import Column, say, show_one
from trainshed.client import ServerNotRunningError, ServerProcess, running
from trainshed.client.discovery import locked
from trainshed.config import Home, Settings, environment
from trainshed.errors import CannotProceedError, TrainshedError
from trainshed.shell.environment import outer_environment

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 40.0


def address_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--ray-address", metavar="HOST:PORT", help="A Ray cluster for jobs and hosts."),
        click.option(
            "--engine", metavar="NAME", help="The default engine of jobs and versions: local or ray. Default: local."
        ),
        click.option(
            "--tls-port", type=click.IntRange(0, 65535), metavar="N", help="Port for HTTPS; 0 picks a free one."
        ),
        click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Port for HTTP; 0 picks a free one."),
        click.option("--host", metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1, this machine only."),
    ):
        command = option(command)
    return command


def _settings(home: Home, flags: dict[str, Any]) -> Settings:
    """Return the settings: options over the environment over config.toml."""
    options = {f"TRAINSHED_SERVER_{name.upper()}": str(value) for name, value in flags.items() if value is not None}
    return Settings.read({**environment(), **options}, home.file_settings().get("server"))


@click.command(cls=Command)
@address_options
def up(**address: Any) -> None:
    """Start the server in the background and return when it is ready.

    \b
    Example:
      trainshed up --port 9000
      trainshed up --host 0.0.0.0 --engine ray --ray-address 10.0.0.5:6379
    """
    home = Home.find(environment())
    if (server := running(home)) is not None:
        say(f"The server is already running at {server.url} (process {server.pid}).")
        say(f"Console: {_console(server)}")
        return
    _settings(home, address)  # reports a bad setting before anything is started
    server = start(home, address)
    say(f"Trainshed is ready at {server.url}")
    say(f"Console: {_console(server)} (opened and signed in by: trainshed console)")
    say(f"TLS:     {server.tls_url}")
    say(f"Token:   {home.token} (print it with: trainshed auth print-access-token)")
    say("Next:    trainshed buckets mb gs://my-bucket")


def _console(server: ServerProcess) -> str:
    """Return the URL of the console for a browser on this machine."""
    return f"{server.url.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:')}/"


def start(
    home: Home, address: dict[str, Any], *, env: Mapping[str, str] | None = None, notify: Callable[[str], None] = say
) -> ServerProcess:
    """Start `trainshed serve` in the background and wait for its message on the readiness pipe.

    `env` is the server's environment. Default: this process's own. `notify` gets one line for people.
    """
    home.create()
    reader, writer = os.pipe()
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in address.items() if value is not None]
    command = [sys.executable, "-m", "trainshed.cli", "serve", f"--ready-fd={writer}", *flags]
    log = os.open(home.server_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    notify("Starting the server...")
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(writer,),
            start_new_session=True,
            cwd=home.path,
            env=outer_environment(environment()) if env is None else env,
        )
    finally:
        os.close(writer)
        os.close(log)
    with open(reader, "rb") as pipe:
        status = _read_status(pipe, process)
    if not status.get("ready"):
        raise CannotProceedError(
            status.get("error") or f"The server ended before it was ready. Its log says why: {home.server_log}"
        )
    if (server := running(home)) is None:
        raise CannotProceedError(f"The server exited right after its start. Its log has the reason: {home.server_log}")
    return server


def _read_status(pipe: BinaryIO, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Read the new server's message: {"ready": true} or {"error": sentence}; {} if it exited without one."""
    if not select.select([pipe], [], [], START_TIMEOUT_S)[0]:
        process.terminate()
        raise CannotProceedError(f"The server was not ready within {START_TIMEOUT_S:.0f} seconds and was stopped.")
    line = pipe.readline()
    return json.loads(line) if line else {}


@click.command(cls=Command)
@address_options
@click.option("--ready-fd", type=int, hidden=True)
def serve(ready_fd: int | None, **address: Any) -> None:
    """Run the server in the foreground until Ctrl-C or SIGTERM.

    \b
    Example:
      trainshed serve --port 9000
    """
    home = Home.find(environment())
    try:
        settings = _settings(home, address)
        from trainshed import server

        server.log_to_stderr(home.server_log)
        server.serve(home, settings, ready=lambda info: _ready(ready_fd, info.url))
    except TrainshedError as exc:
        _write_status(ready_fd, {"error": str(exc)})
        raise


def _ready(ready_fd: int | None, url: str) -> None:
    say(f"Trainshed is ready at {url}")
    _write_status(ready_fd, {"ready": True})


def _write_status(ready_fd: int | None, status: dict[str, Any]) -> None:
    if ready_fd is not None:
        with open(ready_fd, "w") as pipe:
            pipe.write(json.dumps(status) + "\n")


@click.command(cls=Command)
@format_option
@click.pass_context
def status(ctx: click.Context, format: str | None) -> None:
    """Say whether the server runs, and where, and where the notebook is. Exit status 0 if the server runs, 1 if not.

    If predictions have no fast path, `fast_path_off_reason` says why and what to do. `sandbox` is the level of the
    sandbox around user code, and `sandbox_reason` says why it is not a higher one. `network` is the network
    of user code, and `limits` tells by which means its limits are kept, each with a reason if there could be more.

    \b
    Example:
      trainshed status --format json
    """
    home = Home.find(environment())
    from trainshed.local import notebook  # slow to import

    notebook_info = {"notebook": lab.address} if (lab := notebook.running(home)) is not None else {}
    if (server := running(home)) is None:
        say(str(ServerNotRunningError(home)))
        for address in notebook_info.values():
            say(f"A notebook runs at {address}. Stop it with: trainshed notebook --stop")
        ctx.exit(1)
    info = asdict(server) | {"console": _console(server)} | notebook_info
    for name in ("fast_path_off_reason", "sandbox_reason", "network_reason", "limits_reason"):
        if not info[name]:
            del info[name]
    show_one(info, format=format, columns=[Column(name.upper(), name) for name in info])


@click.command(cls=Command)
def down() -> None:
    """Stop the server. Running jobs continue; the next server finds them.

    \b
    Example:
      trainshed down
    """
    say("The server has stopped." if stop(Home.find(environment())) else "No server is running.")


def stop(home: Home) -> bool:
    """Stop the server of a state folder and wait for its end. Returns whether one was running."""
    server = running(home)
    if server is None:
        if locked(home):
            raise CannotProceedError(
                f"Something holds {home.lock}, but does not say who it is; it may be starting. Try again."
            )
        return False
    try:
        os.kill(server.pid, signal.SIGTERM)
    except ProcessLookupError:
        return False
    except PermissionError as exc:
        raise CannotProceedError(f"Process {server.pid} belongs to someone else: {exc.strerror}.") from exc
    _await_end(home, server)
    return True


def _await_end(home: Home, server: ServerProcess) -> None:
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while locked(home):
        if time.monotonic() > deadline:
            raise CannotProceedError(
                f"The server (process {server.pid}) has not stopped within {STOP_TIMEOUT_S:.0f} seconds."
            )
        time.sleep(0.05)


@click.command(cls=Command)
@click.option("--follow", "-f", is_flag=True, help="Show new lines until Ctrl-C.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
def logs(follow: bool, tail: int | None) -> None:
    """Show the server's own log.

    \b
    Example:
      trainshed logs --tail 20 --follow
    """
    home = Home.find(environment())
    if not home.server_log.exists():
        raise CannotProceedError(f"There is no log yet in {home.path}; `trainshed up` starts one.")
    file = open(home.server_log, "rb")  # noqa: SIM115  replaced when the server rotates its log
    try:
        _show_tail(file, tail)
        while follow:
            rotated = _is_rotated(file, home.server_log)
            while chunk := file.read(1 << 16):
                _write(chunk)
            if rotated:
                file.close()
                file = open(home.server_log, "rb")  # noqa: SIM115
            else:
                time.sleep(0.2)
    finally:
        file.close()


def _show_tail(file: BinaryIO, tail: int | None) -> None:
    if tail is not None:
        _write(b"".join(deque(file, maxlen=tail)))
    else:
        while chunk := file.read(1 << 16):
            _write(chunk)


def _write(chunk: bytes) -> None:
    click.echo(chunk, nl=False)


def _is_rotated(file: BinaryIO, path: Path) -> bool:
    """Return whether the log is another file now."""
    try:
        return not os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
