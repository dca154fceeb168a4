"""audit: the record of changes and refused tries."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlencode

import click

from trainshed.cli.jobs.logs import Moment
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import format_option, project_option, session
from trainshed.cli.toolkit.output import Column, json_text, local_time, show_list
from trainshed.client import Client
from trainshed.client.transport import segment

POLL_INTERVAL_S = 1.0
_MAX_PAGE = 1000
_COLUMNS = (
    Column("TIME", "time", local_time),
    Column("USER", "user"),
    Column("ADDRESS", "address"),
    Column("METHOD", "method"),
    Column("RESOURCE", "resource"),
    Column("OUTCOME", "outcome"),
)


@click.command(cls=Command)
@project_option
@click.option("--all-projects", is_flag=True, help="Entries of all projects and of the server itself.")
@click.option("--user", metavar="NAME", help="Only what this user did.")
@click.option("--method", metavar="TEXT", help="Only methods that contain this text.")
@click.option("--resource", metavar="TEXT", help="Only resources that contain this text.")
@click.option("--outcome", metavar="CODE", help="Only this outcome: OK, PERMISSION_DENIED, or refused for all but OK.")
@click.option("--since", type=Moment(), help="Only entries since then: 10m, 2h, or 2026-11-15T21:17:35Z.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of entries.")
@click.option(
    "--follow", is_flag=True, help="Then print new entries as they come, as lines of JSON with --format json."
)
@format_option
def audit(
    project: str | None, all_projects: bool, limit: int, follow: bool, format: str | None, **fields: str | None
) -> None:
    """Show who changed what, and who was refused. Owners see it; the newest entry is the last line.

    \b
    Example:
      trainshed audit --since 1d --outcome refused
      trainshed audit --all-projects --user ada --format json
    """
    context = session(project)
    path = f"/trainshed/v1/projects/{segment(context.project)}/audit" if not all_projects else "/trainshed/v1/audit"
    wanted = {name: value for name, value in fields.items() if value}
    entries, cursor = _newest(context.client, path, wanted, limit)
    if not follow or entries:
        _show(entries, format, lines=follow)
    while follow:
        time.sleep(POLL_INTERVAL_S)
        page = _page(context.client, path, wanted | {"after": cursor, "pageSize": _MAX_PAGE})
        cursor = page["cursor"]
        if page["entries"]:
            _show(page["entries"], format, lines=True)


def _show(entries: list[dict[str, Any]], format: str | None, *, lines: bool) -> None:
    if lines and format == "json":
        for entry in entries:
            click.echo(json_text(entry).replace("\n", ""))
    else:
        show_list(entries, format=format, columns=_COLUMNS)


def _newest(client: Client, path: str, wanted: dict[str, Any], limit: int) -> tuple[list[dict[str, Any]], str]:
    """Return the newest entries, oldest first, and the cursor behind them."""
    entries: list[dict[str, Any]] = []
    cursor, token = "", ""
    while True:
        size = min(limit - len(entries), _MAX_PAGE)
        page = _page(client, path, wanted | {"pageSize": size} | ({"pageToken": token} if token else {}))
        cursor = cursor or page["cursor"]
        entries += page["entries"]
        token = page["nextPageToken"]
        if not token or len(entries) >= limit:
            return entries[::-1], cursor


def _page(client: Client, path: str, query: dict[str, Any]) -> dict[str, Any]:
    return dict(client.call("GET", f"{path}?{urlencode(query)}"))
