"""backup, restore: copies of the state folder, on the machine of the server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import format_option
from trainshed.cli.toolkit.output import say, show_one
from trainshed.cli.toolkit.transfers import human
from trainshed.config import Home, Settings, environment
from trainshed.errors import CannotProceedError

if TYPE_CHECKING:
    from trainshed.backup.archive import Progress

_SHOWN = 10  #: names of files in a message


@click.command(cls=Command)
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--buckets", is_flag=True, help="Also the objects of buckets that are folders.")
@click.option("--logs", is_flag=True, help="Also journals, logs and samples of jobs.")
@click.option(
    "--without-secret-key", is_flag=True, help="Not the key of secrets: nobody can read them from the archive."
)
@format_option
def backup(file: Path | None, buckets: bool, logs: bool, without_secret_key: bool, format: str | None) -> None:
    """Write the server's state to one archive: rows, keys, tokens, configuration and models' files.

    The server may run. FILE must not exist; by default it is in the current folder, named by the time. The archive
    gives the rights of the owner: keep it as you keep a key.

    \b
    Example:
      trainshed backup --buckets /mnt/backups/monday.tar
    """
    home = _home()
    from trainshed.backup.archive import write_backup  # slow to import

    target = (file or Path(f"trainshed-{datetime.now():%Y%m%d-%H%M%S}.tar")).absolute()
    with _bar() as progress:
        report = write_backup(
            home, target, buckets=buckets, logs=logs, secret_key=not without_secret_key, progress=progress
        )
    _warn("could not be read and are not in the backup", report.skipped)
    _warn("were written to while they were copied", report.changed)
    say(f"Wrote {report.path}: {report.files} files, {human(report.size)}.")
    if not buckets:
        say("Objects of buckets are not in it; --buckets adds them.")
    if without_secret_key:
        say("The key of secrets is not in it. Keep a copy of the file secret-key of the state folder at another place.")
    _show(asdict(report), format)


@click.command(cls=Command)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--replace", is_flag=True, help="Replace what is there; the old state is moved to `replaced`.")
@format_option
def restore(file: Path, replace: bool, format: str | None) -> None:
    """Restore a backup, or a copy of the database that the server made, into the state folder.

    The server must be stopped. FILE is checked first; a restore that is interrupted leaves the old state or the new
    one. Parts of the state that FILE does not have stay as they are.

    \b
    Example:
      trainshed restore /mnt/backups/monday.tar
      trainshed restore --replace ~/.trainshed/backups/state-20261118T040000.000000Z.db
    """
    home = _home()
    from trainshed.backup.restore import restore as restore_backup  # slow to import

    with _bar() as progress:
        report = restore_backup(home, file.absolute(), replace=replace, progress=progress)
    say(f"Restored {', '.join(report.restored)} in {report.home}.")
    if report.replaced:
        say(f"What was there before is in {report.replaced}. Remove it when you don't need it any more.")
    if report.unreadable_secrets:
        say(
            f"WARNING: the key of {report.unreadable_secrets} secrets is not here. Put the file secret-key back into "
            f"{report.home}, or set them again: `trainshed secrets list` names them."
        )
    say("Next: trainshed up")
    _show(asdict(report), format)


def _home() -> Home:
    """Return the state folder. Raises `CannotProceedError` if the rows are in PostgreSQL."""
    home = Home.find(environment())
    if Settings.read(environment(), home.file_settings().get("server")).database:
        raise CannotProceedError(
            "The rows of this server are in PostgreSQL: back them up and restore them with pg_dump and pg_restore, and "
            "copy the state folder beside them while the server is stopped."
        )
    return home


def _warn(what: str, files: tuple[str, ...]) -> None:
    if files:
        more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
        say(f"WARNING: {len(files)} files {what}: {', '.join(files[:_SHOWN])}{more}.")


def _show(report: dict[str, Any], format: str | None) -> None:
    if format is not None:
        show_one(report, format=format)


@contextmanager
def _bar() -> Iterator[Progress]:
    """Yield a callback for progress, which is shown if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
