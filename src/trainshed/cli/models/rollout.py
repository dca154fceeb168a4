"""models split, rollback and curl; the replay before a version becomes the default."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import click

from trainshed.cli.models.commands import fetch, last_part, own_path_of
from trainshed.cli.models.predict import target_of
from trainshed.cli.models.predict_io import instance_options, request_body
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import (
    CommandContext,
    confirm,
    format_option,
    is_quiet,
    project_option,
    quiet_option,
    session,
)
from trainshed.cli.toolkit.output import Column, say, show_list
from trainshed.client.transport import segment
from trainshed.errors import CannotProceedError

_WEIGHTS = (Column("VERSION", "version"), Column("PERCENT", "percent"))
_INLINE = 2000  #: characters of a sample request that still fit into a command line to look at
_SHOWN = 3  #: changed answers that are shown in full
_CUT = 200


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
@click.option("--end", is_flag=True, help="End the split: the default version answers everything again.")
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
    here = session(project)
    where = own_path_of(here, model)
    if weights or end:
        here.client.call("POST", f"{where}:split", body={"weights": dict(weights)})
    found = here.client.call("GET", where)
    shares: dict[str, Any] = found.get("split") or {}
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
    here = session(project)
    confirm(f"This will take back the last change of what answers for model [{model}].", quiet=quiet)
    here.client.call("POST", f"{own_path_of(here, model)}:rollback", body={})
    default = fetch(here, model).get("defaultVersion") or {}
    say(f"The default version of model [{model}] is [{last_part(default.get('name'))}].")


@click.command(cls=Command)
@click.argument("model")
@click.option("--version", metavar="VERSION", help="The version to ask. Default: the model's default version.")
@instance_options
@project_option
def curl(model: str, version: str | None, project: str | None, **given: str | None) -> None:
    """Print the curl line that asks a model for a prediction. Your token is put in when the line is run.

    \b
    Example:
      trainshed models curl iris
      trainshed models curl iris --json-instances test.json
    """
    here = session(project)
    url = f"{here.client.url}{target_of(here, model, version)}:predict"
    click.echo(curl_line(url, _data(here, model, version, given)))


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


def _data(here: CommandContext, model: str, version: str | None, given: dict[str, str | None]) -> str:
    """What is sent: the files given, else the version's own sample request, else a file to write first."""
    if any(given.values()):
        return json.dumps(request_body(**given, signature_name=None), sort_keys=True)
    sample = json.dumps(_sample(here, model, version))
    if sample != "null" and len(sample) <= _INLINE:
        return sample
    say('Write the instances to request.json first, such as: {"instances": [...]}')
    return "@request.json"


def _sample(here: CommandContext, model: str, version: str | None) -> Any:
    if version is None:
        version = last_part((fetch(here, model).get("defaultVersion") or {}).get("name"))
    if not version:
        return None
    return here.client.call("GET", f"{own_path_of(here, model)}/versions/{segment(version)}").get("sample")


def check_replay(here: CommandContext, model: str, version: str, *, count: int, quiet: bool) -> None:
    """Replay logged requests on a version and say what came out. Asks whether to go on, unless no answer changed.

    `CannotProceedError` if the answer is no, or if there is no one to ask.
    """
    where = f"{own_path_of(here, model)}/versions/{segment(version)}:replay"
    say(f"Replaying the last {count} logged requests of model [{model}] on version [{version}]...")
    report = here.client.call("POST", where, body={"count": count})
    for line in replay_lines(report):
        say(line)
    if report["compared"] and not report["changed"]:
        return
    if not is_quiet(quiet) and not sys.stdin.isatty():
        raise CannotProceedError(
            f"The default version was not changed. Give -q to make [{version}] the default all the same."
        )
    confirm(f"\nThis will make version [{version}] the default of model [{model}].", quiet=quiet)


def replay_lines(report: dict[str, Any]) -> list[str]:
    """What a replay found, for people."""
    if not report["compared"]:
        return ["There are no logged requests to replay. `trainshed versions update --help` says how to log some."]
    lines = [f"Compared {report['compared']} requests: {report['changed']} answers changed."]
    for example in report.get("examples", ())[:_SHOWN]:
        lines += [f"  {name}: {_cut(example.get(name))}" for name in ("instance", "before", "after")]
    before, after = report["latency_ms"]["before"], report["latency_ms"]["after"]
    shown = (f"{name} {before[name]:.1f} -> {after[name]:.1f}" for name in ("p50", "p99"))
    return [*lines, f"Latency in ms: {', '.join(shown)}"]


def _cut(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _CUT else f"{text[:_CUT]}..."
