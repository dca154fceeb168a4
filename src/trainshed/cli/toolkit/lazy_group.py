"""Groups that import a command when it is used, and commands whose errors are sentences."""

from __future__ import annotations

import errno
import importlib
from collections.abc import Mapping
from typing import Any

import click

from trainshed.errors import TrainshedError


class CommandError(click.ClickException):
    """`ERROR: (trainshed.jobs.describe) sentence` on stderr, exit status 1."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path.replace(" ", ".")
        super().__init__(message)

    def show(self, file: Any = None) -> None:
        click.echo(f"ERROR: ({self.path}) {self.message}", file=file, err=True)


class CommandUsageError(CommandError):
    """The same, with the command's usage and exit status 2."""

    exit_code = 2

    def __init__(self, path: str, message: str, usage: str) -> None:
        self.usage = usage
        super().__init__(path, message)

    def show(self, file: Any = None) -> None:
        super().show(file)
        click.echo(f"{self.usage}\nFor detailed information, run: {self.path.replace('.', ' ')} --help", err=True)


class Command(click.Command):
    """A command that shows expected errors without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TrainshedError as exc:
            from trainshed.cli.toolkit.output import sentence

            raise CommandError(ctx.command_path, sentence(exc, project=ctx.meta.get(PROJECT, ""))) from exc
        except OSError as exc:
            if exc.errno == errno.EPIPE:  # the reader closed the pipe: click exits silently
                raise
            raise CommandError(ctx.command_path, f"{exc.filename or 'The system'}: {exc.strerror or exc}.") from exc


PROJECT = "trainshed.project"  #: in a context's `meta`: the project of the command, once it is known


class LazyGroup(click.Group):
    """A group whose commands are named by `module:attribute` and imported on use.

    `table` maps a command's name to (location, one line of help). A location that is a table makes a group.
    """

    command_class = Command

    def __init__(self, *args: Any, table: Mapping[str, tuple[Any, str]], aliases: tuple[str, ...] = (), **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.table = table
        self.aliases = frozenset(aliases)  #: names that work but are not listed

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the names. Of two names for one command only the first is listed."""
        locations: list[Any] = []
        names: list[str] = []
        for name, (location, _) in self.table.items():
            if name not in self.aliases and location not in locations:
                names.append(name)
            locations.append(location)
        return names

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        location, help_line = self.table[cmd_name]
        if isinstance(location, click.Command):
            return location
        if not isinstance(location, str):
            return LazyGroup(name=cmd_name, table=location, help=help_line)
        module, _, attribute = location.partition(":")
        command: click.Command = getattr(importlib.import_module(f"trainshed.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.table[name][1]) for name in self.list_commands(ctx)])


class RootGroup(LazyGroup):
    """The whole program. Formats the usage errors of all commands like other errors."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as exc:
            context = exc.ctx or ctx
            raise CommandUsageError(context.command_path, exc.format_message(), context.get_usage()) from exc
