"""local train: run a trainer on this machine, without a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from trainshed.cli.jobs.submit_training import SubmitCommand
from trainshed.cli.toolkit.output import say, show_build
from trainshed.config import Home, environment
from trainshed.errors import CannotProceedError
from trainshed.local import interpreters, processes
from trainshed.local.buckets import LocalBuckets
from trainshed.local.train import (
    ReplicaCounts,
    Trainer,
    check_module,
    check_ports,
    cluster_programs,
    explain_exit,
    single_program,
    warnings,
)

_DEFAULTS = {"parameter_server_count": 2, "worker_count": 2, "evaluator_count": 0, "start_port": 27182}


@click.command(cls=SubmitCommand)
@click.option("--module-name", required=True, metavar="MODULE", help="The module to run, such as trainer.task.")
@click.option(
    "--package-path",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The package with the trainer. Default: the current folder.",
)
@click.option("--job-dir", metavar="FOLDER", help="Where the trainer's output goes; passed to it as its last argument.")
@click.option("--distributed", "is_distributed", is_flag=True, help="Run a cluster of several processes.")
@click.option(
    "--parameter-server-count", type=click.IntRange(0), metavar="N", help="How many parameter servers. Default: 2."
)
@click.option("--worker-count", type=click.IntRange(0), metavar="N", help="How many workers. Default: 2.")
@click.option("--evaluator-count", type=click.IntRange(0), metavar="N", help="How many evaluators. Default: 0.")
@click.option(
    "--start-port", type=click.IntRange(1, 65535), metavar="N", help="The first port of the cluster. Default: 27182."
)
@click.option(
    "--runtime-version",
    metavar="VERSION",
    help="Run it on this runtime, built if necessary. Default: the `python` on the PATH.",
)
def train(
    module_name: str,
    package_path: Path | None,
    job_dir: str | None,
    is_distributed: bool,
    runtime_version: str | None,
    **sizes: int | None,
) -> None:
    """Run a trainer on this machine, without a server, and end with its exit status.

    What stands after `--` goes to the trainer. Addresses like gs://bucket/path become paths if the bucket is in the
    state folder. With --distributed each line of output begins with the replica that wrote it; all processes end with
    the first one, and with Ctrl-C. Each has its TF_CONFIG; the first one and the workers also have the ranks that
    PyTorch and JAX read, for which --parameter-server-count is 0.

    \b
    Example:
      trainshed local train --package-path trainer --module-name trainer.task --job-dir output \\
          --distributed --worker-count 2 --parameter-server-count 1 -- --train-steps 100
    """
    package = (package_path or Path.cwd()).expanduser().absolute()
    if not package.is_dir():
        raise CannotProceedError(
            f"The package path [{package}] is not a folder. Name the folder that holds the trainer's code."
        )
    check_module(package, module_name)
    for text in warnings(package, module_name):
        say(f"WARNING: {text}")
    if not is_distributed:
        _warn_ignored(sizes)
    trainer = Trainer(
        python=_python(runtime_version),
        module=module_name,
        folder=package.parent,
        args=_arguments(job_dir, click.get_current_context().meta["user_args"]),
    )
    try:
        status = (
            _distributed(trainer, sizes)
            if is_distributed
            else processes.run_one(single_program(trainer, environment()))
        )
    except processes.StopRequested as exc:
        status = 128 + exc.number
    if text := explain_exit(status, package, trainer.args):
        say(f"\n{text}")
    sys.exit(status)


def _warn_ignored(sizes: dict[str, int | None]) -> None:
    flags = [f"--{name.replace('_', '-')}" for name, value in sizes.items() if value is not None]
    for flag in flags:
        say(f"WARNING: {flag} is ignored if --distributed is not provided.\nDid you mean to run distributed training?")


def _python(runtime_version: str | None) -> Path:
    if runtime_version is None:
        return interpreters.on_path(environment().get("PATH"))
    with show_build(runtime_version) as progress:
        python, choice = interpreters.runtime_python(Home.find(environment()), runtime_version, progress)
    for note in choice.notes:
        say(f"WARNING: {note}")
    return python


def _arguments(job_dir: str | None, user_args: tuple[str, ...]) -> tuple[str, ...]:
    buckets = LocalBuckets(Home.find(environment()))
    arguments = (*user_args, *(("--job-dir", job_dir) if job_dir else ()))
    resolved = tuple(buckets.resolve(text) for text in arguments)
    for uri in dict.fromkeys(buckets.unknown):
        say(f"WARNING: {uri} is not in a bucket of this machine's state folder; the trainer gets it as it is.")
    return resolved


def _distributed(trainer: Trainer, sizes: dict[str, int | None]) -> int:
    values: dict[str, Any] = {name: _DEFAULTS[name] if value is None else value for name, value in sizes.items()}
    counts = ReplicaCounts(
        servers=values["parameter_server_count"],
        workers=values["worker_count"],
        evaluators=values["evaluator_count"],
    )
    check_ports(values["start_port"], 1 + counts.servers + counts.workers)
    version = interpreters.tensorflow_version(trainer.python)
    if version is None:
        say(f"WARNING: {trainer.python} has no TensorFlow; TF_CONFIG calls the first replica `chief`.")
    primary = "master" if version and version.startswith("1.") else "chief"
    programs = cluster_programs(trainer, environment(), counts, start_port=values["start_port"], primary=primary)
    return processes.run_gang(programs, _show, on_exit=_report_exit)


def _show(name: str, line: bytes, is_error: bool) -> None:
    stream = sys.stderr.buffer if is_error else sys.stdout.buffer
    stream.write(b"[" + name.encode() + b"] " + line)
    stream.flush()


def _report_exit(name: str, status: int) -> None:
    if status:
        say(f"{name} failed with exit status {status}, so all others are ended.")
    else:
        say(f"{name} has ended.")
