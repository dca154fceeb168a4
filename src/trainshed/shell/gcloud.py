"""gcloud's command lines: flags that may stand anywhere, and alternatives to unsupported commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_FORWARDED_FLAGS = ("--project", "--format")  #: flags of every command that are forwarded
_QUIET_FLAGS = ("--quiet", "-q")
#: flags of every command without effect here -> whether they take a value
_IGNORED_FLAGS: Mapping[str, bool] = {
    "--verbosity": True,
    "--billing-project": True,
    "--trace-token": True,
    "--user-output-enabled": False,
    "--no-user-output-enabled": False,
    "--log-http": False,
    "--no-log-http": False,
}
_WARNED_FLAGS = ("--account", "--configuration", "--impersonate-service-account")  #: the same, with a warning
#: commands that are not needed here, by their first words: a message, and success
NOT_NEEDED: Mapping[tuple[str, ...], str] = {
    ("auth", "login"): "You are signed in already, with the token of this state folder. "
    "`gcloud auth print-access-token` prints it; TRAINSHED_TOKEN chooses another one.",
    ("auth", "application-default", "login"): "Programs in this shell find their credentials already: "
    "GOOGLE_APPLICATION_CREDENTIALS names them.",
    ("auth", "configure-docker"): "There is no registry to sign in to.",
    ("services", "enable"): "Every API that Trainshed serves is enabled.",
    ("components", "install"): "There are no components to install.",
    ("components", "update"): "There are no components to update.",
    ("init",): "There is nothing to set up. `gcloud config set project ID` chooses a project.",
}
_NO_REGISTRY = (
    "There is no registry. Build images on this machine, with podman build, and name them by --master-image-uri."
)
#: alternatives to unsupported commands, by their first words
INSTEAD: Mapping[tuple[str, ...], str] = {
    ("ai",): "That is another API, Vertex AI. `gcloud ai-platform` has jobs, models and predictions.",
    ("app",): "Deploy a model with `gcloud ai-platform versions create`.",
    ("artifacts",): _NO_REGISTRY,
    ("auth", "activate-service-account"): "There are no service accounts. `trainshed auth tokens create` makes a token "
    "for someone; TRAINSHED_TOKEN uses it.",
    ("builds",): _NO_REGISTRY,
    ("compute", "ssh"): "Jobs run on this machine. `gcloud ai-platform jobs stream-logs JOB` shows what they write.",
    ("compute",): "There are no machines to make: jobs run on this one. `--scale-tier` and `--config` say how many "
    "replicas a job has.",
    ("config", "configurations"): "TRAINSHED_HOME chooses another state folder, `gcloud config set project` another "
    "project.",
    ("container",): _NO_REGISTRY,
    ("iam",): "Tokens decide who may do what. `trainshed auth tokens create --role viewer` makes one.",
    ("logging",): "`gcloud ai-platform jobs stream-logs JOB` and `trainshed jobs logs JOB` show logs.",
    ("projects", "add-iam-policy-binding"): "Tokens decide who may do what. `trainshed auth tokens create --role "
    "viewer` makes one.",
    ("projects", "create"): "A project comes into being when it is first used: `gcloud config set project ID`.",
    ("projects", "delete"): "Delete what is in it: jobs, models, and buckets with `gsutil rm -r gs://BUCKET`.",
    ("storage",): "`gsutil` and `trainshed buckets` have what there is for buckets.",
}
_ZONE_LETTERS = {
    "asia-east1": "abc",
    "asia-northeast1": "abc",
    "asia-south1": "abc",
    "asia-southeast1": "abc",
    "australia-southeast1": "abc",
    "europe-north1": "abc",
    "europe-west1": "bcd",
    "europe-west2": "abc",
    "europe-west3": "abc",
    "europe-west4": "abc",
    "northamerica-northeast1": "abc",
    "southamerica-east1": "abc",
    "us-central1": "abcf",
    "us-east1": "bcd",
    "us-east4": "abc",
    "us-west1": "abc",
    "us-west2": "abc",
}
REGIONS = tuple(_ZONE_LETTERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class GcloudCommand:
    """A command line without the flags that may stand anywhere in it."""

    words: tuple[str, ...]
    project: str | None = None
    format: str | None = None
    quiet: bool = False
    notes: tuple[str, ...] = ()  #: warnings about flags without effect


def parse(args: Sequence[str]) -> GcloudCommand:
    """Take out the flags that every command of gcloud has. Words after `--` are the trainer's and stay."""
    words: list[str] = []
    notes: list[str] = []
    values: dict[str, str] = {}
    quiet = False
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += [word, *rest]
            break
        name, equals, value = word.partition("=")
        takes_value = name in _FORWARDED_FLAGS or name in _WARNED_FLAGS or _IGNORED_FLAGS.get(name, False)
        if takes_value and not equals:
            value = rest.pop(0) if rest else ""
        if name in _FORWARDED_FLAGS:
            values[name] = value
        elif word in _QUIET_FLAGS:
            quiet = True
        elif name in _WARNED_FLAGS:
            notes.append(f"{name} has no effect here: who you are is decided by your token.")
        elif name not in _IGNORED_FLAGS:
            words.append(word)
    return GcloudCommand(
        words=tuple(words),
        project=values.get("--project"),
        format=values.get("--format"),
        quiet=quiet,
        notes=tuple(notes),
    )


def longest(table: Mapping[tuple[str, ...], str], words: Sequence[str]) -> str | None:
    """Return the entry for the longest prefix of a command line. Returns None if there is none."""
    for count in range(len(words), 0, -1):
        if (text := table.get(tuple(words[:count]))) is not None:
            return text
    return None


def names(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words before the first flag, without the tracks `alpha` and `beta`."""
    command: list[str] = []
    for word in words:
        if word.startswith("-"):
            break
        command.append(word)
    return tuple(command[1:] if command[:1] in (["alpha"], ["beta"]) else command)


def refusal(words: Sequence[str]) -> str:
    """Return a sentence about an unsupported command."""
    command = " ".join(words[:3])
    supported = (
        "`gcloud ai-platform` (also `ml-engine` and `beta ml`), `config`, `auth`, `projects`, `compute zones list`"
    )
    remedy = longest(INSTEAD, words) or f"What there is: {supported}, and `gsutil`."
    return f"Trainshed does not serve `gcloud {command}`. {remedy}"


def zones() -> list[dict[str, str]]:
    """Return each zone with its region, in order."""
    return [
        {"name": f"{region}-{letter}", "region": region, "status": "UP"}
        for region, letters in _ZONE_LETTERS.items()
        for letter in letters
    ]
