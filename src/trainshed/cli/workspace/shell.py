"""shell: the user's own shell, in which gcloud, gsutil and datalab use this server."""

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
@click.option("--google", is_flag=True, help="Use the real Google Cloud CLI, configured for this server.")
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
    outer_env = outer_environment(environment())
    if google:
        _check_google(outer_env)
    context = session(project)
    home = context.settings.home
    target = shell_target(
        context, home.shell / ("google" if google else "bin"), fixed_project=_is_fixed(project, outer_env)
    )
    if target.reach is None and google:
        raise CannotProceedError(
            "The real Google Cloud CLI can't be pointed at this server, which leads nobody here: it runs on another "
            "machine, or with gs_in_trainers set to google. `trainshed shell` without --google works."
        )
    extra = google_cli(target, target.reach) if google and target.reach is not None else {}
    shims.write(target.shims, shims.shim_scripts(_programs(home, outer_env, runtime_version), google=google))
    _become(_start(outer_env, command, target), outer_env, target, extra)


def _is_fixed(project: str | None, outer_env: dict[str, str]) -> bool:
    return bool(project or outer_env.get("TRAINSHED_PROJECT"))


def shell_target(context: CommandContext, programs: Path, *, fixed_project: bool) -> ShellTarget:
    """Start a server if none runs, and write the files with which programs reach it.

    `programs` is the folder for shims.
    """
    home = context.settings.home
    endpoints = _server(context.settings)
    target = ShellTarget(
        home=home,
        project=context.project,
        reach=endpoints,
        shims=programs,
        credentials=home.shell / _name(context.settings, context.project),
        fixed_project=fixed_project,
    )
    if endpoints is not None:
        token = context.settings.token or owner_token(home) or ""
        client_config.write_files(
            target.credentials,
            client_config.config_files(endpoints, project=context.project, folder=target.credentials, token=token),
        )
    return target


def _server(settings: ClientSettings) -> client_config.ServerEndpoints | None:
    """Start a server if none runs. Returns how programs reach it, or None, after a message, if they can't."""
    server = running(settings.home)
    if settings.url is not None and (server is None or settings.url.rstrip("/") not in (server.url, server.tls_url)):
        say(f"gcloud, gsutil and trainshed talk to {settings.url}. Other programs are not led there.")
        return None
    if server is None:
        server = start(settings.home, {})
        say(f"Started a server at {server.url}; `trainshed down` stops it.")
    endpoints = server_endpoints(settings.home)
    if endpoints is None:
        say(
            "Only gcloud, gsutil and trainshed talk to your server: other programs reach the real Google, because of "
            "the setting gs_in_trainers. To change it: trainshed config set server/gs_in_trainers trainshed"
        )
    return endpoints


def _name(settings: ClientSettings, project: str) -> str:
    """Return a folder name for each project and token: open shells may differ in both."""
    return hashlib.sha256(f"{project}\0{settings.token or ''}".encode()).hexdigest()[:16]


def _check_google(outer_env: dict[str, str]) -> None:
    if shutil.which("gcloud", path=outer_env["PATH"]) is None:
        raise CannotProceedError(
            "The Google Cloud CLI is not installed: there is no gcloud on the PATH. `trainshed shell` without --google "
            "needs none."
        )


def _programs(home: Home, outer_env: dict[str, str], runtime_version: str) -> shims.Programs:
    runtime, folder = "", Path()
    if runtime_version != "none":
        from trainshed.local.interpreters import folder_of

        runtime, folder = folder_of(home, runtime_version)
    return shims.Programs(
        python=sys.executable,
        git=shutil.which("git", path=outer_env["PATH"]),
        sudo=shutil.which("sudo", path=outer_env["PATH"]),
        runtime=runtime,
        runtime_folder=folder,
    )


def _start(outer_env: dict[str, str], command: str | None, target: ShellTarget) -> startup.ShellStart:
    name = outer_env.get("SHELL") or "/bin/sh"
    program = shutil.which(name, path=outer_env["PATH"])
    if program is None:
        raise CannotProceedError(
            f"The shell {name!r}, which the variable SHELL names, can't be started. Set SHELL to another one."
        )
    if command is not None or not sys.stdin.isatty():
        return startup.scripted(program, command)
    say(
        f"gcloud, gsutil, datalab and tensorboard talk to your own server now, in project {target.project}. "
        "Type exit to leave."
    )
    zdotdir = outer_env.get("ZDOTDIR") or str(Path.home())
    return startup.interactive(program, target.shims, target.home.shell, zdotdir=zdotdir)


def _become(start: startup.ShellStart, outer_env: dict[str, str], target: ShellTarget, extra: dict[str, str]) -> None:
    """Replace this process by the shell, whose exit status is this program's."""
    for path, text in start.files.items():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(start.argv[0], start.argv, inner_environment(outer_env, target, {**extra, **start.variables}))  # noqa: S606
