"""shell: the user's own shell, in which gcloud, gsutil and datalab mean this server."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import click

from trainshed.cli.server.process import start
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import CommandContext, project_option, session
from trainshed.cli.toolkit.output import say
from trainshed.client.discovery import owner_token, running, server_endpoints
from trainshed.config import ClientSettings, Home, environment
from trainshed.errors import CannotProceedError
from trainshed.proxy import client_config
from trainshed.shell import shims, startup
from trainshed.shell.environment import ShellTarget, google_cli, inner_environment, outer_environment

_RUNTIME = "2.21"


@click.command(cls=Command)
@click.option("-c", "command", metavar="TEXT", help="Run this command line and end, as `sh -c` does.")
@click.option("--google", is_flag=True, help="Use the real Google Cloud CLI of this machine, pointed here.")
@click.option(
    "--runtime-version",
    metavar="VERSION",
    default=_RUNTIME,
    help=f"The runtime whose Python `python` is, built at first use; `none` is your own Python. Default: {_RUNTIME}.",
)
@project_option
def shell(command: str | None, google: bool, runtime_version: str, project: str | None) -> None:
    """Open your shell with gcloud, gsutil, datalab and tensorboard that talk to this server.

    The server is started if none runs. A script on stdin is run, and so is the text of -c; the exit status is the
    shell's. Google's own libraries, and curl to ml.googleapis.com, reach this server too; other hosts are left alone.

    \b
    Example:
      trainshed shell
      trainshed shell -c 'gcloud ai-platform jobs list'
    """
    around = outer_environment(environment())
    if google:
        _check_google(around)
    here = session(project)
    home = here.settings.home
    place = led_here(here, home.shell / ("google" if google else "bin"), fixed_project=_is_fixed(project, around))
    if place.reach is None and google:
        raise CannotProceedError(
            "The real Google Cloud CLI can't be pointed at this server, which leads nobody here: it runs on another "
            "machine, or with gs_in_trainers set to google. `trainshed shell` without --google works."
        )
    more = google_cli(place, place.reach) if google and place.reach is not None else {}
    shims.write(place.shims, shims.shim_scripts(_programs(home, around, runtime_version), google=google))
    _become(_start(around, command, place), around, place, more)


def _is_fixed(project: str | None, around: dict[str, str]) -> bool:
    return bool(project or around.get("TRAINSHED_PROJECT"))


def led_here(here: CommandContext, programs: Path, *, fixed_project: bool) -> ShellTarget:
    """Have a server run, and the files written that lead programs to it. `programs` is the folder for shims."""
    home = here.settings.home
    led = _server(here.settings)
    place = ShellTarget(
        home=home,
        project=here.project,
        reach=led,
        shims=programs,
        credentials=home.shell / _name(here.settings, here.project),
        fixed_project=fixed_project,
    )
    if led is not None:
        token = here.settings.token or owner_token(home) or ""
        client_config.write_files(
            place.credentials,
            client_config.config_files(led, project=here.project, folder=place.credentials, token=token),
        )
    return place


def _server(settings: ClientSettings) -> client_config.ServerEndpoints | None:
    """Have a server run. How programs are led to it; None, after a word about it, if they are not."""
    server = running(settings.home)
    if settings.url is not None and (server is None or settings.url.rstrip("/") not in (server.url, server.tls_url)):
        say(f"gcloud, gsutil and trainshed talk to {settings.url}. Other programs are not led there.")
        return None
    if server is None:
        server = start(settings.home, {})
        say(f"Started a server at {server.url}; `trainshed down` stops it.")
    led = server_endpoints(settings.home)
    if led is None:
        say(
            "Only gcloud, gsutil and trainshed talk to your server: other programs reach the real Google, because of "
            "the setting gs_in_trainers. To change it: trainshed config set server/gs_in_trainers trainshed"
        )
    return led


def _name(settings: ClientSettings, project: str) -> str:
    """A folder for each project and token: shells that are open at the same time may differ in both."""
    return hashlib.sha256(f"{project}\0{settings.token or ''}".encode()).hexdigest()[:16]


def _check_google(around: dict[str, str]) -> None:
    if shutil.which("gcloud", path=around["PATH"]) is None:
        raise CannotProceedError(
            "The Google Cloud CLI is not installed: there is no gcloud on the PATH. `trainshed shell` without --google "
            "needs none."
        )


def _programs(home: Home, around: dict[str, str], runtime_version: str) -> shims.Programs:
    runtime, folder = "", Path()
    if runtime_version != "none":
        from trainshed.local.interpreters import folder_of

        runtime, folder = folder_of(home, runtime_version)
    return shims.Programs(
        python=sys.executable,
        git=shutil.which("git", path=around["PATH"]),
        sudo=shutil.which("sudo", path=around["PATH"]),
        runtime=runtime,
        runtime_folder=folder,
    )


def _start(around: dict[str, str], command: str | None, place: ShellTarget) -> startup.ShellStart:
    named = around.get("SHELL") or "/bin/sh"
    program = shutil.which(named, path=around["PATH"])
    if program is None:
        raise CannotProceedError(
            f"The shell {named!r}, which the variable SHELL names, can't be started. Set SHELL to another one."
        )
    if command is not None or not sys.stdin.isatty():
        return startup.scripted(program, command)
    say(
        f"gcloud, gsutil, datalab and tensorboard talk to your own server now, in project {place.project}. "
        "Type exit to leave."
    )
    zdotdir = around.get("ZDOTDIR") or str(Path.home())
    return startup.interactive(program, place.shims, place.home.shell, zdotdir=zdotdir)


def _become(start: startup.ShellStart, around: dict[str, str], place: ShellTarget, more: dict[str, str]) -> None:
    """Go on as the shell: its exit status is this program's."""
    for path, text in start.files.items():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(start.argv[0], start.argv, inner_environment(around, place, {**more, **start.variables}))  # noqa: S606
