"""A training on the user's own machine, as gcloud's `local train` does it: what runs, and what each process is told."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainshed.domain.jobs.gang import EVALUATOR, MASTER, PS, WORKER
from trainshed.errors import CannotProceedError, InvalidArgumentError
from trainshed.local.processes import Program

_KNOWS_JOB_DIR = ("job-dir", "job_dir", "parse_known_args")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCounts:
    """How many of each there are beside the primary."""

    servers: int
    workers: int
    evaluators: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """What is to be run: `python -m module args`, in `folder`."""

    python: Path
    module: str
    folder: Path
    args: tuple[str, ...]  #: with --job-dir, if there is one, at their end


def alone(trainer: Trainer, env: Mapping[str, str]) -> Program:
    """One process without a cluster."""
    return _program(trainer, env, name=f"{MASTER}-replica-0", task={}, cluster={})


def distributed(
    trainer: Trainer, env: Mapping[str, str], counts: ReplicaCounts, *, start_port: int, primary: str
) -> tuple[Program, ...]:
    """The primary first, then the others. `primary` is what TF_CONFIG calls it: chief or master.

    Ports count up from `start_port`: the primary's, then the parameter servers', then the workers'. Evaluators watch
    and are not part of the cluster.
    """
    members = [(primary, MASTER, 1), (PS, PS, counts.servers), (WORKER, WORKER, counts.workers)]
    cluster: dict[str, list[str]] = {}
    port = start_port
    for key, _, count in members:
        if count:
            cluster[key] = [f"localhost:{port + index}" for index in range(count)]
        port += count
    members.append((EVALUATOR, EVALUATOR, counts.evaluators))
    unbuffered = {**env, "PYTHONUNBUFFERED": "1"}  # lines are shown when they are written, not when a pipe is full
    return tuple(
        _program(
            trainer,
            unbuffered,
            name=f"{kind}-replica-{index}",
            task={"type": key, "index": index},
            cluster=cluster,
        )
        for key, kind, count in members
        for index in range(count)
    )


def _program(
    trainer: Trainer, env: Mapping[str, str], *, name: str, task: Mapping[str, Any], cluster: Mapping[str, Any]
) -> Program:
    config = {
        "job": {"job_name": trainer.module, "args": list(trainer.args)},
        "task": task,
        "cluster": cluster,
        "environment": "cloud",
    }
    return Program(
        name=name,
        argv=(str(trainer.python), "-m", trainer.module, *trainer.args),
        env={**env, "TF_CONFIG": json.dumps(config)},
        folder=trainer.folder,
    )


def check_ports(start_port: int, count: int) -> None:
    """`CannotProceedError` if one of these ports is taken."""
    if start_port + count - 1 > 65535:
        raise CannotProceedError(f"{count} ports from {start_port} on reach beyond 65535. Choose a lower --start-port.")
    for port in range(start_port, start_port + count):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the replicas' own listeners do
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as exc:
                raise CannotProceedError(
                    f"Port {port} of this machine can't be used: {exc.strerror}. Each replica needs a port of its own; "
                    f"choose where they start with --start-port."
                ) from exc


def check_module(package: Path, module: str) -> None:
    """`InvalidArgumentError` if the module is said to be in this package and is not."""
    first, *rest = module.split(".")
    if first != package.name or not rest:
        return
    path = package.joinpath(*rest)
    if not path.with_suffix(".py").is_file() and not (path / "__main__.py").is_file():
        there = sorted(f"{first}.{file.stem}" for file in package.glob("*.py") if file.stem != "__init__")
        raise InvalidArgumentError(
            f"There is no module {module} in {package.parent}. There is: {', '.join(there) or 'none'}."
        )


def warnings(package: Path, module: str) -> list[str]:
    """What would go wrong, or be different, when this package is submitted as a job."""
    found = []
    if not (package / "__init__.py").is_file():
        found.append(
            f"[{package}] has no `__init__.py`, so it is not a Python package and can't be submitted. Add an empty one."
        )
    if not (package.parent / "setup.py").is_file() and not (package.parent / "pyproject.toml").is_file():
        found.append(
            f"There is no setup.py beside [{package}]. A trainer is a typical Python package with a setup.py, so that "
            f"pip can install it. A submitted job gets one made for it, which names no requirements."
        )
    if not knows_job_dir(package):
        found.append(
            f"Nothing in [{package}] seems to take the argument --job-dir, which a submitted job passes to {module} "
            f"when it has a job directory. It would fail there with `unrecognized arguments: --job-dir`. Add it: "
            f'parser.add_argument("--job-dir").'
        )
    return found


def knows_job_dir(package: Path) -> bool:
    """Whether some file of the package mentions --job-dir, or takes arguments that it does not know."""
    texts = (path.read_text(errors="replace") for path in package.rglob("*.py") if path.is_file())
    return any(word in text for text in texts for word in _KNOWS_JOB_DIR)


def explain_exit(status: int, package: Path, args: Sequence[str]) -> str:
    """A sentence about an exit status that has a likely cause, or nothing."""
    if status == 2 and "--job-dir" in args and not knows_job_dir(package):
        return (
            "The trainer refused its arguments. It is given --job-dir and does not know it: add "
            'parser.add_argument("--job-dir") to it.'
        )
    return ""
