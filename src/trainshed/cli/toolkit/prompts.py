"""Asking before something is done that can't be undone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from trainshed.cli.toolkit.output import say
from trainshed.errors import CannotProceedError

F = TypeVar("F", bound=Callable[..., Any])


def quiet_option(command: F) -> F:
    return click.option("-q", "--quiet", is_flag=True, help="Don't ask: take yes for the answer.")(command)


def is_quiet(quiet: bool) -> bool:
    """Whether -q was given, to this command or before it."""
    return quiet or bool(click.get_current_context().find_root().params.get("quiet"))


def confirm(warning: str, *, quiet: bool) -> None:
    """Show the warning and ask, if there is someone at a terminal to answer.

    `CannotProceedError` if the answer is no.
    """
    if is_quiet(quiet) or not sys.stdin.isatty():
        return
    say(warning)
    question = "\nDo you want to continue"
    if not click.confirm(question, default=True, show_default=False, prompt_suffix=" (Y/n)?  ", err=True):
        raise CannotProceedError("Aborted by user.")
