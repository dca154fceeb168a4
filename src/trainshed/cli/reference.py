"""The reference pages, generated from the commands and settings.

python -m trainshed.cli.reference cli > docs/cli.md
python -m trainshed.cli.reference settings > docs/settings.md
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import fields

import click

from trainshed.cli.commands import main
from trainshed.config import PREFIX, Settings

CLIENT_VARIABLES = {
    "TRAINSHED_HOME": (
        "`~/.trainshed`",
        "The state folder, mode 0700: database, buckets, job folders, runtimes, token and config.toml. The server and "
        "the command line both use it.",
    ),
    "TRAINSHED_PROJECT": (
        "`project` of config.toml, else `trainshed`",
        "The project of commands that are not given `--project`.",
    ),
    "TRAINSHED_URL": (
        "the server of the state folder",
        "The server to talk to. For one on another machine set TRAINSHED_TOKEN too: the owner's token in the state "
        "folder is sent to this machine only. An `https://` URL is checked against the certificate authority in the "
        "state folder, if there is one.",
    ),
    "TRAINSHED_TOKEN": ("the owner's token in the state folder", "The token to send."),
}


def commands(group: click.Group = main, words: str = "trainshed") -> Iterator[tuple[str, click.Command]]:
    """Yield every command that a help text shows, with its words. Groups come before their commands."""
    context = click.Context(group, info_name=words)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if command.hidden:
            continue
        yield f"{words} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{words} {name}")


def options(command: click.Command) -> Iterator[tuple[str, str]]:
    """Yield (spelling, help) of each option that is shown."""
    context = click.Context(command)
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record is not None:
            yield record


def cli_page() -> str:
    lines = [
        "# Command line",
        "",
        "Made from the commands themselves by `python -m trainshed.cli.reference cli`.",
        "",
        "Data goes to stdout, words to stderr. The exit status is 0, 1 if something failed, 2 if the command line",
        "is invalid, and 130 after Ctrl-C in a stream. Every command has `--help`.",
        "",
        "`ai-platform`, `ml-engine`, `beta`, `alpha` and `beta ml` may stand before `jobs`, `models`, `versions`,",
        "`predict`, `explain`, `operations`, `locations` and `local`, as in gcloud. `--project` and `-q` may stand",
        "before any command.",
        "",
    ]
    for words, command in commands():
        lines += _section(words, command)
    return "\n".join(lines)


def _section(words: str, command: click.Command) -> Iterator[str]:
    text, _, example = inspect.cleandoc(command.help or "").partition("\b\nExample:\n")
    yield from (f"## {words}", "", text.strip(), "")
    if not isinstance(command, click.Group):
        pieces = " ".join(command.collect_usage_pieces(click.Context(command, info_name=words)))
        yield from (f"Usage: `{words} {pieces}`", "")
    if example.strip():
        yield from ("```", inspect.cleandoc(example), "```", "")
    if records := list(options(command)):
        yield from ("| option | what it does |", "|---|---|")
        yield from (f"| `{spelling.replace('|', chr(92) + '|')}` | {what} |" for spelling, what in records)
        yield ""


_MACHINES = [
    "# Machine types",
    "",
    "Tables of config.toml, beside `[server]`. Each adds a machine type, or changes one of Google's:",
    "",
    "```toml",
    "[machines.big_gpu]",
    "cpu = 8",
    "memory_gb = 30",
    "gpu = 1",
    'resources = {"accelerator_type:T4" = 1}',
    "```",
    "",
    "`cpu` and `memory_gb` are needed. `resources` are others, by the names that a Ray cluster has for them.",
    "[Training](training.md#machine-types) tells what they are for.",
    "",
]


_BUCKETS = [
    "# Buckets in a cloud",
    "",
    "Tables of config.toml too. Each says that a bucket of this server is kept in a bucket of a cloud, or in a folder",
    "of one:",
    "",
    "```toml",
    "[buckets.mnist]",
    'url = "s3://lab-data/mnist"',
    'project = "vision"',
    "```",
    "",
    "`url` begins with `s3://`, for which s3fs must be installed, or with `gs://`, for which gcsfs must. Without",
    "`project` it belongs to the default project. Credentials are not written here: they are in the environment of the",
    "server. [Buckets](storage.md#buckets-in-a-cloud) tells more.",
    "",
]


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "Made from the settings themselves by `python -m trainshed.cli.reference settings`.",
        "",
        "A setting of the server is an environment variable, or a line under `[server]` in `config.toml` of the state",
        "folder (`trainshed config set server/port 9000`). An option of `trainshed up` wins over the environment, and",
        "that over the file. The server reads them when it starts. An unknown name or an invalid value is an error.",
        "",
    ]
    for setting in fields(Settings):
        default = "empty" if setting.default == "" else f"`{str(setting.default).lower()}`"
        lines += [f"## {PREFIX}{setting.name.upper()}", "", setting.metadata["description"], ""]
        lines += [f"`{setting.name}` in config.toml. Default: {default}.", ""]
    lines += _MACHINES + _BUCKETS
    lines += ["# The command line's own", ""]
    for name, (default, text) in CLIENT_VARIABLES.items():
        lines += [f"## {name}", "", text, "", f"Default: {default}.", ""]
    return "\n".join(lines)


PAGES = {"cli": cli_page, "settings": settings_page}

if __name__ == "__main__":
    click.echo(PAGES[sys.argv[1]](), nl=False)
