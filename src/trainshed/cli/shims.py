"""The programs of `trainshed shell`: `python -m trainshed.cli.shims gcloud ...` does what its name says.

Each takes the arguments of the program that it replaces, and calls Trainshed's commands in this process.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from trainshed.cli.toolkit.lazy_group import CommandError
from trainshed.cli.toolkit.output import say
from trainshed.config import environment
from trainshed.errors import CannotProceedError, TrainshedError
from trainshed.shell import datalab as datalab_lines
from trainshed.shell import git as git_lines
from trainshed.shell.environment import outer_environment


def gcloud(args: Sequence[str]) -> None:
    from trainshed.cli.workspace.gcloud import run

    run(args)


def gsutil(args: Sequence[str]) -> None:
    from trainshed.cli.workspace.gsutil import run

    run(args)


def datalab(args: Sequence[str]) -> None:
    from trainshed.cli.commands import main

    words = datalab_lines.words(args)
    if words is None:
        raise CannotProceedError(datalab_lines.refusal(args))
    if words[0] == "notebook":
        say("The notebook runs on this machine, whatever the zone.")
    main(words, prog_name="trainshed")


def tensorboard(args: Sequence[str]) -> None:
    from trainshed.cli.commands import main

    translations = {"--bind_all": ("--host", "0.0.0.0")}  # noqa: S104  requested by this flag
    main(["tensorboard", *(word for arg in args for word in translations.get(arg, (arg,)))], prog_name="trainshed")


def git(args: Sequence[str]) -> None:
    """Copy a sample in place of a known repository. Everything else goes to the real git."""
    clone = git_lines.clone(args)
    if clone is None:
        program = shutil.which("git", path=outer_environment(environment())["PATH"])
        if program is None:
            raise CannotProceedError("git is not installed. `trainshed samples list` shows what needs no clone.")
        os.execv(program, [program, *args])  # noqa: S606  the real git, with its arguments
    from trainshed.local import samples
    from trainshed.sample_files import samples_folder

    target = Path(clone.folder)
    samples.check_new(target)
    root = samples_folder()
    for part in clone.parts:
        samples.copy_part(samples.find(root, part.sample), part.source, target / part.target)
    names = " and ".join(dict.fromkeys(part.sample for part in clone.parts))
    say(f"Cloning into '{clone.folder}'...")
    say(f"{clone.repository} was not downloaded: this is Trainshed's own sample {names}, which takes its place.")


PROGRAMS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "gcloud": gcloud,
    "gsutil": gsutil,
    "datalab": datalab,
    "tensorboard": tensorboard,
    "git": git,
}


def main(name: str, args: Sequence[str]) -> None:
    try:
        PROGRAMS[name](args)
    except TrainshedError as exc:
        failure = CommandError(name, str(exc))
        failure.show()
        sys.exit(failure.exit_code)
    except click.exceptions.Exit as exc:
        sys.exit(exc.exit_code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
