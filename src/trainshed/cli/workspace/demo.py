"""demo: a server of its own, a distributed training, a deployment and a prediction, in one command."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainshed.cli.server.process import START_TIMEOUT_S, start, stop
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import CommandContext, format_option
from trainshed.cli.toolkit.output import say, sentence, show_one
from trainshed.cli.workspace.demo_display import Board, Stage, show_board
from trainshed.client import ServerProcess, running
from trainshed.client.discovery import locked
from trainshed.config import DEFAULT_PROJECT, PREFIX, ClientSettings, Home, environment
from trainshed.errors import CannotProceedError, TrainshedError
from trainshed.local import demo as local
from trainshed.local.samples import find
from trainshed.sample_files import samples_folder
from trainshed.shell.environment import outer_environment

if TYPE_CHECKING:
    from trainshed.client.demo import Demo, TrainedJob

DEFAULT_STEPS = 800
LINK_RENEWAL_INTERVAL_S = 30.0  #: a link expires after a minute
_TITLES = {
    "server": "Start a server",
    "data": "Copy MNIST to a bucket",
    "runtime": "Install TensorFlow",
    "training": "Train on four replicas",
    "deployment": "Deploy the model",
    "prediction": "Predict ten digits",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _CommandLines:
    """Command lines to print: one resumes this demo, one removes it."""

    go_on: str
    clean: str


@click.command(cls=Command)
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=DEFAULT_STEPS,
    metavar="N",
    help=f"Steps to train, over all replicas. Default: {DEFAULT_STEPS}.",
)
@click.option(
    "--home",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The demo's state folder. Default: ~/.trainshed-demo.",
)
@click.option("--clean", is_flag=True, help="Stop the demo's server and remove its state folder.")
@format_option
def demo(steps: int, folder: Path | None, clean: bool, format: str | None) -> None:
    """Train and deploy a model, and predict, on a separate server.

    Trains MNIST on a master, two workers and a parameter server, deploys it, and predicts ten handwritten digits. The
    demo's server has its own state folder and ports; it does not touch other servers. The first run installs
    TensorFlow, which takes a few minutes and 3 GB. Every run continues where the last one ended: a repeated run finds
    everything done, one with other --steps trains again.

    Progress goes to stderr, live on a terminal, else as lines. The result goes to stdout.

    \b
    Example:
      trainshed demo
      trainshed demo --steps 2000 --format json
      trainshed demo --clean
    """
    home = Home((folder or local.default_home()).expanduser().resolve())
    base = _command("demo", *(["--home", str(home.path)] if folder else []))
    commands = _CommandLines(
        go_on=base if steps == DEFAULT_STEPS else f"{base} --steps {steps}",
        clean=f"{base} --clean",
    )
    try:
        if clean:
            _remove(home)
            return
        with local.hold_lock(home):
            result = _result(home, steps, commands)
    except KeyboardInterrupt:
        say(_interrupted(home, commands, cleaning=clean))
        raise click.exceptions.Exit(130) from None
    if format is not None:
        show_one(result, format=format)
    else:
        click.echo(_summary(result, home, commands))


def _result(home: Home, steps: int, commands: _CommandLines) -> dict[str, Any]:
    """Run the demo. An error also names the server's log and how to go on."""
    try:
        return _Run(home, steps).result()
    except TrainshedError as exc:
        log = [f"The server's log: {home.server_log}"] if home.server_log.is_file() else []
        remedies = [f"To go on: {commands.go_on}", f"To remove all of it: {commands.clean}"]
        raise TrainshedError("\n".join([sentence(exc), *log, *remedies])) from exc


class _Run:
    """One run of the demo: its stages in order, each shown on a board."""

    def __init__(self, home: Home, steps: int) -> None:
        self._home = home
        self._steps = steps
        self._sample = find(samples_folder(), "mnist_async").folder
        self._board = Board([Stage(key, title) for key, title in _TITLES.items()])
        self._link_due_s = 0.0

    def result(self) -> dict[str, Any]:
        """Run all stages. Returns the summary."""
        from rich.console import Console

        from trainshed.client.demo import DIGITS, MODEL

        with show_board(self._board, Console(stderr=True), say):
            demo = self._connect()
            self._prepare(demo)
            training = self._train(demo)
            version = self._deploy(demo, training.job)
            digits = self._predict(demo)
        return {
            "job": training.job,
            "steps": self._steps,
            "accuracy": training.accuracy,
            "model": MODEL,
            "version": version,
            "predictions": digits,
            "labels": list(DIGITS),
            "console_url": demo.console_link(),
            "server_url": demo.context.client.url,
            "home": str(self._home.path),
            "seconds": self._board.seconds(),
        }

    def _connect(self) -> Demo:
        from trainshed.client.demo import Demo

        with self._board.stage("server") as stage:
            self._board.update(stage, f"In {self._home.path}, on free ports")
            server = _ready_server(self._home)
            stage.text = f"{server.url}, process {server.pid}"
        settings = ClientSettings(home=self._home, project=DEFAULT_PROJECT, url=None, token=None)
        context = CommandContext(settings, settings.project)
        return Demo(context=context, sample=self._sample, command=_command(home=self._home), steps=self._steps)

    def _prepare(self, demo: Demo) -> None:
        from trainshed.client.demo import BUCKET, RUNTIME

        with self._board.stage("data") as stage:
            write = partial(local.write_records, self._home, self._sample)
            new = demo.copy_data(write, self._reporter(demo, stage))
            local.remove_records(self._home)
            stage.text = (
                f"60,000 images to learn from, 10,000 to measure with, in gs://{BUCKET}" if new else "done before"
            )
        with self._board.stage("runtime") as stage:
            new = demo.install_runtime(self._reporter(demo, stage))
            stage.text = f"runtime {RUNTIME}" if new else f"runtime {RUNTIME}, done before"

    def _train(self, demo: Demo) -> TrainedJob:
        with self._board.stage("training") as stage:
            training = demo.train(self._reporter(demo, stage))
            before = ", done before" if training.reused else ""
            stage.text = f"job {training.job}, accuracy {training.accuracy:.3f}{before}"
        return training

    def _deploy(self, demo: Demo, job: str) -> str:
        from trainshed.client.demo import MODEL

        with self._board.stage("deployment") as stage:
            version, new = demo.deploy(job, self._reporter(demo, stage))
            stage.text = f"version {version} of model {MODEL}" + ("" if new else ", done before")
        return version

    def _predict(self, demo: Demo) -> list[int]:
        from trainshed.client.demo import DIGITS

        with self._board.stage("prediction") as stage:
            self._reporter(demo, stage)("Sending the first ten test images")
            digits = demo.predict(local.write_request(self._home, self._sample))
            stage.text = f"{_count_correct(digits, DIGITS)} of {len(DIGITS)} right"
        return digits

    def _reporter(self, demo: Demo, stage: Stage) -> Any:
        def report(text: str, fraction: float | None = None, more: tuple[str, ...] = ()) -> None:
            self._renew_link(demo)
            self._board.update(stage, text, fraction, more)

        return report

    def _renew_link(self, demo: Demo) -> None:
        if time.monotonic() >= self._link_due_s:
            self._link_due_s = time.monotonic() + LINK_RENEWAL_INTERVAL_S
            self._board.link = demo.console_link()


def _ready_server(home: Home) -> ServerProcess:
    """Return the server of this state folder. Waits for one that starts or stops, and starts one if there is none."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while (server := running(home)) is None and locked(home):
        if time.monotonic() > deadline:
            raise CannotProceedError(f"A server has held {home.lock} for {START_TIMEOUT_S:.0f} s without being ready.")
        time.sleep(0.1)
    if server is not None:
        return server
    return start(home, {"port": 0, "tls_port": 0}, env=_server_environment(home), notify=lambda text: None)


def _server_environment(home: Home) -> Mapping[str, str]:
    """Return an environment without settings for another server, such as its database, and without clouds."""
    env = {name: value for name, value in outer_environment(environment()).items() if not name.startswith("TRAINSHED_")}
    return env | {"TRAINSHED_HOME": str(home.path), f"{PREFIX}GS_IN_TRAINERS": "trainshed"}


def _remove(home: Home) -> None:
    if not home.path.exists():
        say(f"There is no demo in {home.path}: nothing to remove.")
        return
    with local.hold_lock(home):
        from trainshed.local import notebook

        if notebook.stop(home):
            say("Stopped its notebook.")
        if stop(home):
            say("Stopped its server.")
        for job in local.end_jobs(home):
            say(f"Ended its job {job}.")
        say(f"Removing {home.path} ...")
        local.remove(home)
    say(f"Removed {home.path}: its buckets, jobs, models and runtimes. Packages in uv's own cache stay.")


def _command(*words: str, home: Home | None = None) -> str:
    """Return how this user calls the command line; with `home`, so that it uses that server."""
    program = Path(sys.argv[0])
    installed = shutil.which("trainshed")
    if program.name != "trainshed" or (installed and Path(installed).resolve() == program.resolve()):
        name = "trainshed"
    else:
        name = str(program.absolute())
    if home is None:
        return shlex.join([name, *words])
    env = environment()
    foreign = {"TRAINSHED_URL": "", "TRAINSHED_TOKEN": "", "TRAINSHED_PROJECT": DEFAULT_PROJECT}
    changed = {"TRAINSHED_HOME": str(home.path)} | {key: value for key, value in foreign.items() if env.get(key)}
    return " ".join(
        [
            *(f"{key}={shlex.quote(value)}" if value else f"{key}=" for key, value in changed.items()),
            shlex.join([name, *words]),
        ]
    )


def _interrupted(home: Home, commands: _CommandLines, *, cleaning: bool) -> str:
    if cleaning:
        return f"\nInterrupted. To remove the rest:\n  {commands.clean}"
    goes_on = " Its server goes on, and so does a job that runs." if running(home) else ""
    return f"\nInterrupted.{goes_on}\nTo go on:\n  {commands.go_on}\nTo remove all of it:\n  {commands.clean}"


def _count_correct(digits: list[int], labels: tuple[int, ...]) -> int:
    return sum(a == b for a, b in zip(digits, labels, strict=True))


def _summary(result: Mapping[str, Any], home: Home, commands: _CommandLines) -> str:
    digits, labels = result["predictions"], result["labels"]
    request = home.path / "demo" / "request.json"
    command = partial(_command, home=home)
    return "\n".join(
        [
            f"\nAccuracy on 10,000 test images: {result['accuracy']:.1%} after {result['steps']:,} steps.",
            f"The ten digits are:  {' '.join(map(str, labels))}",
            f"The model predicts:  {' '.join(map(str, digits))}",
            f"\nOpen the console: {result['console_url']}",
            "The link signs in once, within a minute.",
            "\nNext",
            f"  a new link:       {command('console')}",
            f"  ask the model:    {command('predict', '--model', result['model'], '--json-instances', str(request))}",
            f"  look at the job:  {command('jobs', 'describe', result['job'])}",
            f"  remove the demo:  {commands.clean}",
        ]
    )
