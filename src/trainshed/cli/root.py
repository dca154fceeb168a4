"""The table of all commands. Nothing else is imported until one of them runs."""

from __future__ import annotations

from typing import Any

import click

from trainshed import __version__
from trainshed.cli.group import LazyGroup, RootGroup

JOBS: dict[str, tuple[Any, str]] = {
    "submit": ({"training": ("submit:training", "Submit a training job.")}, "Submit a job."),
    "list": ("jobs:list_", "List jobs, the newest first."),
    "describe": ("jobs:describe", "Show one job."),
    "cancel": ("jobs:cancel", "Cancel a job that has not ended."),
    "update": ("jobs:update", "Change the labels of a job."),
    "stream-logs": ("job_logs:stream_logs", "Show a job's log until the job ends."),
    "logs": ("job_logs:logs", "Show a job's log, or a part of it."),
    "chaos": ("chaos:chaos", "Kill a replica of a running job, to see how the job gets over it."),
}

OPERATIONS: dict[str, tuple[Any, str]] = {
    "list": ("operations:list_", "List operations."),
    "describe": ("operations:describe", "Show one operation."),
    "wait": ("operations:wait", "Wait until an operation is done."),
    "cancel": ("operations:cancel", "Cancel an operation."),
}

ML: dict[str, tuple[Any, str]] = {
    "jobs": (JOBS, "Submit, watch and cancel jobs."),
    "operations": (OPERATIONS, "Look at long-running operations."),
    "locations": ({"list": ("operations:locations", "List locations.")}, "Look at locations."),
    "local": ({"train": ("local:train", "Run a trainer on this machine, without a server.")}, "Run without a server."),
}

_OLD: dict[str, tuple[Any, str]] = {
    name: (ML, f"Old name: `{name} jobs` is `jobs`.") for name in ("ai-platform", "ml-engine")
}
_TRACKS: dict[str, tuple[Any, str]] = ML | _OLD | {"ml": (ML, "Old name: `ml jobs` is `jobs`.")}

COMMANDS: dict[str, tuple[Any, str]] = {
    "up": ("servers:up", "Start the server in the background."),
    "status": ("servers:status", "Say whether the server runs, and where."),
    "down": ("servers:down", "Stop the server."),
    "logs": ("servers:logs", "Show the server's own log."),
    "serve": ("servers:serve", "Run the server in the foreground."),
    **ML,
    "buckets": ("buckets:buckets", "Make buckets and copy files in and out."),
    "runtimes": (
        {
            "list": ("runtimes:list_", "List runtimes and their state."),
            "install": ("runtimes:install", "Build a runtime now, not at its first job."),
            "remove": ("runtimes:remove", "Remove a built runtime from the disk."),
        },
        "Look at runtimes, install and remove them.",
    ),
    "tensorboard": ("tensorboard:tensorboard", "Show TensorBoard on what a training writes."),
    "samples": (
        {
            "list": ("samples:list_", "List the samples that come with Trainshed."),
            "copy": ("samples:copy", "Copy a sample, with its data, to a new folder."),
        },
        "Trainers to copy and to start from.",
    ),
    "auth": (
        {
            "print-access-token": ("auth:print_access_token", "Print the token that this command line uses."),
            "tokens": (
                {
                    "create": ("auth:create", "Make a token and print it on stdout."),
                    "list": ("auth:list_", "List tokens, without their secrets."),
                    "revoke": ("auth:revoke", "Make a token useless from now on."),
                },
                "Make, list and revoke tokens.",
            ),
        },
        "Tokens: print yours, make others.",
    ),
    "config": (
        {
            "list": ("configuration:list_", "List the project and the server settings."),
            "get": ("configuration:get", "Print one property."),
            "get-value": ("configuration:get", "Print one property."),
            "set": ("configuration:set_", "Set a property."),
            "unset": ("configuration:unset", "Remove a property from config.toml."),
        },
        "The default project and the server's settings.",
    ),
    **_OLD,
    "beta": (_TRACKS, "Old prefix: `beta ml jobs` is `jobs`."),
    "alpha": (_TRACKS, "Old prefix: `alpha ml jobs` is `jobs`."),
}


@click.group(
    cls=RootGroup,
    table=COMMANDS,
    aliases=("ai-platform", "ml-engine", "beta", "alpha"),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="Trainshed %(version)s")
@click.option("--project", metavar="ID", help="The project, for the command that follows.")
def main(project: str | None) -> None:
    """The ML Engine you own: submit, train and watch.

    \b
    Example:
      trainshed up
      trainshed buckets mb gs://my-bucket
      trainshed jobs submit training first --package-path trainer --module-name trainer.task \\
          --staging-bucket gs://my-bucket --runtime-version 2.21 --stream-logs
    """


__all__ = ["COMMANDS", "LazyGroup", "main"]
