"""The table of all commands. Nothing else is imported until one of them runs."""

from __future__ import annotations

from typing import Any

import click

from trainshed import __version__
from trainshed.cli.toolkit.lazy_group import LazyGroup, RootGroup

JOBS: dict[str, tuple[Any, str]] = {
    "submit": (
        {
            "training": ("jobs.submit_training:training", "Submit a training job."),
            "prediction": ("jobs.submit_prediction:prediction", "Predict the rows of files with a model."),
        },
        "Submit a job.",
    ),
    "list": ("jobs.commands:list_", "List jobs, the newest first."),
    "describe": ("jobs.commands:describe", "Show one job."),
    "cancel": ("jobs.commands:cancel", "Cancel a job that has not ended."),
    "stop-trial": ("jobs.trials:stop_trial", "Stop a trial of a tuning job, and keep what it has reported."),
    "update": ("jobs.commands:update", "Change the labels of a job."),
    "stream-logs": ("jobs.logs:stream_logs", "Show a job's log until the job ends."),
    "logs": ("jobs.logs:logs", "Show a job's log, or a part of it."),
    "watch": ("jobs.watch:watch", "Watch a job until it ends: its progress, and what each replica does."),
    "stats": ("jobs.stats:stats", "Show the CPU and memory of each replica, while a job runs and afterwards."),
    "chaos": ("jobs.commands:chaos", "Kill a replica of a running job, to see how the job gets over it."),
}

MODELS: dict[str, tuple[Any, str]] = {
    "create": ("models.commands:create", "Create a model."),
    "list": ("models.commands:list_", "List models."),
    "describe": ("models.commands:describe", "Show one model."),
    "update": ("models.commands:update", "Change the description and the labels of a model."),
    "delete": ("models.commands:delete", "Delete a model that has no versions."),
    "split": ("models.rollout:split", "Split the requests for a model between versions."),
    "rollback": ("models.rollout:rollback", "Make the version the default that was it before."),
    "curl": ("models.rollout:curl", "Print the curl line that asks a model for a prediction."),
    "get-iam-policy": ("models.policies:get", "Show who holds which role on a model."),
    "set-iam-policy": ("models.policies:set_", "Replace the policy of a model."),
    "add-iam-policy-binding": ("models.policies:add", "Give someone a role on a model."),
    "remove-iam-policy-binding": ("models.policies:remove", "Take a role on a model away from someone."),
}

VERSIONS: dict[str, tuple[Any, str]] = {
    "create": ("models.create_version:create", "Create a version of a model."),
    "list": ("models.versions:list_", "List the versions of a model."),
    "describe": ("models.versions:describe", "Show one version."),
    "set-default": ("models.versions:set_default", "Make a version the one that answers requests for the model."),
    "update": ("models.versions:update", "Change a version."),
    "delete": ("models.versions:delete", "Delete a version."),
    "rollout": (
        "models.version_rollouts:rollout",
        "Roll a version out by stages, and back by itself if a condition says so.",
    ),
    "list-rollouts": ("models.version_rollouts:list_rollouts", "List the rollouts of a model."),
}

LOCAL: dict[str, tuple[Any, str]] = {
    "train": ("local.train:train", "Run a trainer on this machine, without a server."),
    "predict": ("local.predict:predict", "Ask an exported model on this machine, without a server."),
}

OPERATIONS: dict[str, tuple[Any, str]] = {
    "list": ("models.operations:list_", "List operations."),
    "describe": ("models.operations:describe", "Show one operation."),
    "wait": ("models.operations:wait", "Wait until an operation is done."),
    "cancel": ("models.operations:cancel", "Cancel an operation."),
}

STUDIES: dict[str, tuple[Any, str]] = {
    "list": ("studies.commands:list_", "List studies, the newest first."),
    "describe": ("studies.commands:describe", "Show one study."),
    "trials": ("studies.commands:trials", "List the trials of a study."),
    "delete": ("studies.commands:delete", "Delete a study with all of its trials."),
}

TUNING: dict[str, tuple[Any, str]] = {
    "trials": ("tuning.steering:trials", "List the trials of a tuning job, the best first."),
    "update": ("tuning.steering:update", "Change how many trials a search has, or how many run at a time."),
    "try": ("tuning.steering:try_", "Make values of your own the next trial of a search."),
    "finish": ("tuning.steering:finish", "Stop all trials of a search, and keep what they have reported."),
    "continue": ("tuning.follow_up:continue_", "Go on with a search that has ended, in a new job."),
    "train": ("tuning.follow_up:train", "Submit a normal job with the values of the best trial."),
    "promote": ("tuning.follow_up:promote", "Deploy what the best trial exported."),
}

ML: dict[str, tuple[Any, str]] = {
    "jobs": (JOBS, "Submit, watch and cancel jobs."),
    "models": (MODELS, "Create models, and say which version answers."),
    "versions": (VERSIONS, "Deploy what a training exported."),
    "predict": ("models.predict:predict", "Ask a deployed model for predictions."),
    "explain": ("models.predict:explain", "Ask a deployed model which parts of its input its predictions come from."),
    "operations": (OPERATIONS, "Look at long-running operations."),
    "locations": ({"list": ("models.operations:locations", "List locations.")}, "Look at locations."),
    "local": (LOCAL, "Run without a server."),
}

_ALIASES: dict[str, tuple[Any, str]] = {
    name: (ML, f"Old name: `{name} jobs` is `jobs`.") for name in ("ai-platform", "ml-engine")
}
_TRACKS: dict[str, tuple[Any, str]] = ML | _ALIASES | {"ml": (ML, "Old name: `ml jobs` is `jobs`.")}

COMMANDS: dict[str, tuple[Any, str]] = {
    "up": ("server.process:up", "Start the server in the background."),
    "status": ("server.process:status", "Say whether the server runs, and where."),
    "down": ("server.process:down", "Stop the server."),
    "logs": ("server.process:logs", "Show the server's own log."),
    "serve": ("server.process:serve", "Run the server in the foreground."),
    "backup": ("server.backup:backup", "Write the server's state to one archive."),
    "restore": ("server.backup:restore", "Restore a backup."),
    "console": ("server.console:console", "Open the console in a browser, signed in."),
    "demo": ("workspace.demo:demo", "Train and deploy a model, and predict, on a separate server."),
    **ML,
    "tuning": (TUNING, "Look at searches of tuning jobs, steer them, continue them, use their best trial."),
    "studies": (STUDIES, "Look at studies, and delete them."),
    "buckets": ("buckets.commands:buckets", "Make buckets and copy files in and out."),
    "runtimes": (
        {
            "list": ("server.runtimes:list_", "List runtimes and their state."),
            "install": ("server.runtimes:install", "Build a runtime now, not at its first job."),
            "remove": ("server.runtimes:remove", "Remove a built runtime from the disk."),
        },
        "Look at runtimes, install and remove them.",
    ),
    "shell": (
        "workspace.shell:shell",
        "Open your shell with gcloud, gsutil, datalab and tensorboard that talk to this server.",
    ),
    "notebook": ("workspace.notebook:notebook", "Start JupyterLab in the background."),
    "tensorboard": ("workspace.tensorboard:tensorboard", "Show TensorBoard on what a training writes."),
    "samples": (
        {
            "list": ("workspace.samples:list_", "List the samples that come with Trainshed."),
            "copy": ("workspace.samples:copy", "Copy a sample, with its data, to a new folder."),
        },
        "Trainers to copy and to start from.",
    ),
    "mirror": (
        {
            "add": ("buckets.mirror:add", "Serve the public object URI from here."),
            "list": ("buckets.mirror:list_", "List mirrors of public objects."),
            "remove": ("buckets.mirror:remove", "Remove a mirror."),
        },
        "Public objects of Cloud Storage that this server has itself.",
    ),
    "auth": (
        {
            "login": ("server.sign_in:login", "Sign in to the server of TRAINSHED_URL by its OpenID provider."),
            "logout": ("server.sign_in:logout", "End the sign-in to the server of TRAINSHED_URL."),
            "print-access-token": ("server.auth:print_access_token", "Print the token that this command line uses."),
            "tokens": (
                {
                    "create": ("server.auth:create", "Make a token and print it on stdout."),
                    "list": ("server.auth:list_", "List tokens, without their secrets."),
                    "revoke": ("server.auth:revoke", "Make a token useless from now on."),
                },
                "Make, list and revoke tokens.",
            ),
            "keys": (
                {"create": ("server.keys:create", "Make a key of a service account, in a file.")},
                "Keys of service accounts, in Google's form.",
            ),
            "users": (
                {
                    "list": ("server.users:list_", "List users and service accounts."),
                    "create": ("server.users:create", "Add a user or a service account."),
                    "disable": ("server.users:disable", "End all tokens and sessions of a user."),
                    "enable": ("server.users:enable", "Enable a user."),
                },
                "Add, list, disable and enable users.",
            ),
        },
        "Sign-in, tokens and users.",
    ),
    "network": (
        {
            "describe": ("server.network:describe", "Show what user code of a project reaches."),
            "set": ("server.network:set_", "Set what user code of a project reaches."),
            "reset": ("server.network:reset", "Let a project have the server's network."),
        },
        "What user code of a project reaches over the network.",
    ),
    "quotas": (
        {
            "list": ("server.quotas:list_", "List the limits that apply in a project, with what is in use."),
            "describe": ("server.quotas:describe", "Show what a limit counts, and what is in use of it."),
            "set": ("server.quotas:set_", "Set a limit."),
            "unset": ("server.quotas:unset", "Remove a limit."),
        },
        "Limits of projects and users.",
    ),
    "secrets": (
        {
            "list": ("server.secrets:list_", "List the names of a project's secrets."),
            "set": ("server.secrets:set_", "Set a secret."),
            "delete": ("server.secrets:delete", "Delete a secret."),
            "rotate-key": ("server.secrets:rotate_key", "Encrypt all secrets of all projects with a new key."),
        },
        "Values that jobs get and nobody reads.",
    ),
    "audit": ("server.audit:audit", "Show who changed what, and who was refused."),
    "config": (
        {
            "list": ("server.config:list_", "List the project and the server settings."),
            "get": ("server.config:get", "Print one property."),
            "get-value": ("server.config:get", "Print one property."),
            "set": ("server.config:set_", "Set a property."),
            "unset": ("server.config:unset", "Remove a property from config.toml."),
        },
        "The default project and the server's settings.",
    ),
    **_ALIASES,
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
@click.option("-q", "--quiet", is_flag=True, help="Don't ask, for the command that follows: take yes for the answer.")
def main(project: str | None, quiet: bool) -> None:
    """The ML Engine you own: submit, train, watch, deploy and predict.

    \b
    Example:
      trainshed up
      trainshed buckets mb gs://my-bucket
      trainshed jobs submit training first --package-path trainer --module-name trainer.task \\
          --staging-bucket gs://my-bucket --runtime-version 2.21 --stream-logs
      trainshed models create digits
      trainshed versions create v1 --model digits --origin gs://my-bucket/first/export
      trainshed predict --model digits --json-instances request.json
    """


__all__ = ["COMMANDS", "LazyGroup", "main"]
