"""models split, rollback and curl, and the replay before a version becomes the default."""

from __future__ import annotations

import json
import shlex
from typing import Any

import click

from trainshed.cli.models.commands import fetch, last_part, native_path_of
from trainshed.cli.models.predict import target_of
from trainshed.cli.models.predict_io import instance_options, request_body
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import (
    CommandContext,
    confirm,
    format_option,
    project_option,
    quiet_option,
    session,
)
from trainshed.cli.toolkit.output import Column, say, show_list
from trainshed.client.transport import segment

_WEIGHTS = (Column("VERSION", "version"), Column("PERCENT", "percent"))
_MAX_INLINE_CHARS = 2000  #: characters of a sample request that still fit into a command line
_MAX_EXAMPLES = 3  #: changed predictions that are shown in full
_MAX_VALUE_CHARS = 200


class Weight(click.ParamType[tuple[str, int]]):
    """`v1=90`."""

    name = "VERSION=PERCENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        version, _, percent = str(value).partition("=")
        if not version or not percent.isdigit():
            self.fail(f"[{value}] must be VERSION=PERCENT, such as v1=90.", param, ctx)
        return version, int(percent)


@click.command(cls=Command)
@click.argument("model")
@click.argument("weights", type=Weight(), nargs=-1, metavar="[VERSION=PERCENT]...")
@click.option("--end", is_flag=True, help="End the split: the default version serves all requests.")
@project_option
@format_option
def split(model: str, weights: tuple[tuple[str, int], ...], end: bool, project: str | None, format: str | None) -> None:
    """Split the requests for a model between versions. Without weights: show the split.

    \b
    Example:
      trainshed models split MNIST v1=90 v2=10
      trainshed models split MNIST --end
    """
    if end and weights:
        raise click.UsageError("--end goes without weights.")
    context = session(project)
    path = native_path_of(context, model)
    if weights or end:
        context.client.call("POST", f"{path}:split", body={"weights": dict(weights)})
    details = context.client.call("GET", path)
    shares: dict[str, Any] = details.get("split") or {}
    if not shares:
        say(f"The requests for model [{model}] are not split: its default version answers them.")
        return
    rows = [{"version": version, "percent": percent} for version, percent in sorted(shares.items())]
    show_list(rows, format=format, columns=_WEIGHTS)


@click.command(cls=Command)
@click.argument("model")
@project_option
@quiet_option
def rollback(model: str, project: str | None, quiet: bool) -> None:
    """Make the version the default that was it before. If requests are split, end the split instead.

    \b
    Example:
      trainshed models rollback MNIST
    """
    context = session(project)
    confirm(f"This will take back the last change of what answers for model [{model}].", quiet=quiet)
    context.client.call("POST", f"{native_path_of(context, model)}:rollback", body={})
    default = fetch(context, model).get("defaultVersion") or {}
    say(f"The default version of model [{model}] is [{last_part(default.get('name'))}].")


@click.command(cls=Command)
@click.argument("model")
@click.option("--version", metavar="VERSION", help="The version. Default: the model's default version.")
@instance_options
@project_option
def curl(model: str, version: str | None, project: str | None, **request_options: str | None) -> None:
    """Print the curl line that asks a model for a prediction. Your token is put in when the line is run.

    \b
    Example:
      trainshed models curl iris
      trainshed models curl iris --json-instances test.json
    """
    context = session(project)
    url = f"{context.client.url}{target_of(context, model, version)}:predict"
    click.echo(curl_line(url, _data(context, model, version, request_options)))


def curl_line(url: str, data: str) -> str:
    return " \\\n    ".join(
        (
            "curl -X POST",
            '-H "Authorization: Bearer $(trainshed auth print-access-token)"',
            '-H "Content-Type: application/json"',
            f"--data {shlex.quote(data)}",
            shlex.quote(url),
        )
    )


def _data(context: CommandContext, model: str, version: str | None, request_options: dict[str, str | None]) -> str:
    """Return the data to send: the given files, else the version's sample request, else a file to write first."""
    if any(request_options.values()):
        return json.dumps(request_body(**request_options, signature_name=None), sort_keys=True)
    sample = json.dumps(_sample(context, model, version))
    if sample != "null" and len(sample) <= _MAX_INLINE_CHARS:
        return sample
    say('Write the instances to request.json first, such as: {"instances": [...]}')
    return "@request.json"


def _sample(context: CommandContext, model: str, version: str | None) -> Any:
    if version is None:
        version = last_part((fetch(context, model).get("defaultVersion") or {}).get("name"))
    if not version:
        return None
    return context.client.call("GET", f"{native_path_of(context, model)}/versions/{segment(version)}").get("sample")


def check_replay(context: CommandContext, model: str, version: str, *, count: int, quiet: bool) -> None:
    """Replay logged requests on a version and report the result. Asks for confirmation, unless no prediction changed.

    Raises `CannotProceedError` if the answer is no, or if there is nobody to ask.
    """
    path = f"{native_path_of(context, model)}/versions/{segment(version)}:replay"
    say(f"Replaying the last {count} logged requests of model [{model}] on version [{version}]...")
    report = context.client.call("POST", path, body={"count": count})
    for line in replay_lines(report):
        say(line)
    if report["compared"] and report["complete"] and not report["changed"]:
        return
    confirm(
        f"\nThis will make version [{version}] the default of model [{model}].",
        quiet=quiet,
        unattended=f"The default version was not changed. Give -q to make [{version}] the default all the same.",
    )


def replay_lines(report: dict[str, Any]) -> list[str]:
    """Format the result of a replay."""
    if not report["compared"]:
        return ["There are no logged requests to replay. `trainshed versions update --help` says how to log some."]
    lines = [f"Compared {report['compared']} requests: {report['changed']} answers changed."]
    if not report["complete"]:
        lines.append("The time for a replay was over before all requests were compared. Replay fewer of them.")
    for example in report.get("examples", ())[:_MAX_EXAMPLES]:
        lines += [f"  {name}: {_shorten(example.get(name))}" for name in ("instance", "before", "after")]
    before, after = report["latencyMs"]["before"], report["latencyMs"]["after"]
    latencies = (f"{name} {before[name]:.1f} -> {after[name]:.1f}" for name in ("p50", "p99"))
    return [*lines, f"Latency in ms: {', '.join(latencies)}"]


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]}..."
