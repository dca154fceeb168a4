"""console: open the console in a browser, signed in."""

from __future__ import annotations

import click

from trainshed.cli.toolkit.browser import open_browser
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import format_option, project_option, session
from trainshed.cli.toolkit.output import Column, say, show_one
from trainshed.client.discovery import is_loopback


@click.command(cls=Command)
@click.option("--no-browser", is_flag=True, help="Only print the sign-in link.")
@project_option
@format_option
def console(no_browser: bool, project: str | None, format: str | None) -> None:
    """Open the console in a browser, signed in with the token of this command line.

    The address works once, within a minute. It is printed too, for a browser that does not open it.

    \b
    Example:
      trainshed console
      trainshed console --no-browser
    """
    context = session(project)
    url = context.client.call("POST", "/trainshed/v1/session:link", body={"project": context.project})["url"]
    page = context.settings.home.path / "console.html" if is_loopback(context.client.url) else None
    browser_opened = not no_browser and open_browser(url, page)
    if format is not None:
        show_one(
            {"url": url, "opened": browser_opened},
            format=format,
            columns=[Column("URL", "url"), Column("OPENED", "opened")],
        )
    elif browser_opened:
        # a browser from a snap starts, but may be unable to read a page in a hidden folder; nothing here can tell
        say(f"Opened the console of {context.client.url} in your browser. If nothing shows, open this within a minute:")
        say(url)
    else:
        say("Open this address in a browser within a minute; it signs in once:")
        click.echo(url)
