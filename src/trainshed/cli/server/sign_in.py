"""auth login, logout: sign-in to a server by its OpenID provider."""

from __future__ import annotations

import contextlib
import time

import click

from trainshed.cli.toolkit.browser import open_browser
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import project_option
from trainshed.cli.toolkit.output import say
from trainshed.client.discovery import client_sessions, connect, write_client_sessions
from trainshed.config import ClientSettings, environment
from trainshed.domain import names
from trainshed.errors import CannotProceedError, UnauthenticatedError

_PATH = "/trainshed/v1/device-sign-in"


@click.command(cls=Command)
@click.option("--no-browser", is_flag=True, help="Only print the address and the code.")
@project_option
def login(no_browser: bool, project: str | None) -> None:
    """Sign in to the server of TRAINSHED_URL by its OpenID provider, in a browser on any device.

    The command waits until you have signed in there. Commands use the sign-in until it ends: when your groups change,
    when the server restarts, or by `trainshed auth logout`.

    \b
    Example:
      export TRAINSHED_URL=https://trainshed.example.com
      trainshed auth login
    """
    settings = ClientSettings.read(environment())
    url = _server(settings)
    client = connect(settings)
    body = {"project": names.project_id(project)} if project else {}
    begun = client.call("POST", _PATH, body=body)
    say("Open this address in a browser, on any device:")
    say(f"  {begun['url']}")
    say(f"and type in the code {begun['userCode']}.")
    if not no_browser and begun["urlWithCode"]:
        open_browser(begun["urlWithCode"], None)
    interval_s = begun["intervalSeconds"]
    while True:
        time.sleep(interval_s)
        outcome = client.call("POST", f"{_PATH}:finish", body={"handle": begun["handle"]})
        if "token" in outcome:
            break
        interval_s = outcome["intervalSeconds"]
    write_client_sessions(settings.home, {**client_sessions(settings.home), url: outcome["token"]})
    where = "all projects" if outcome["project"] == "*" else f"project {outcome['project']}"
    say(f"Signed in to {url} as {outcome['user']}: {outcome['role']} of {where}.")


@click.command(cls=Command)
def logout() -> None:
    """End the sign-in to the server of TRAINSHED_URL, there and here.

    \b
    Example:
      trainshed auth logout
    """
    settings = ClientSettings.read(environment())
    url = _server(settings)
    sessions = client_sessions(settings.home)
    if url not in sessions:
        raise CannotProceedError(f"There is no sign-in to {url} here.")
    with contextlib.suppress(UnauthenticatedError):  # it has ended there already
        connect(settings).call("DELETE", "/trainshed/v1/session")
    write_client_sessions(settings.home, {each: token for each, token in sessions.items() if each != url})
    say(f"Signed out of {url}.")


def _server(settings: ClientSettings) -> str:
    """Return the URL to sign in to. Raises `CannotProceedError` where no sign-in would be used."""
    if settings.url is None:
        raise CannotProceedError(
            f"Without TRAINSHED_URL, commands use the server of {settings.home.path} with its owner's token. Set "
            f"TRAINSHED_URL to the server to sign in to."
        )
    if settings.token is not None:
        raise CannotProceedError("TRAINSHED_TOKEN is set and would be used instead of a sign-in. Unset it first.")
    return settings.url
