"""A training on the user's machine, as gcloud's `local train` runs it: the processes and their environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainshed.domain.jobs.gang import EVALUATOR, MASTER, PS, WORKER, ReplicaAddress, rank_variables
from trainshed.errors import CannotProceedError, InvalidArgumentError
from trainshed.local.processes import Program, check_port

_JOB_DIR_MARKERS = ("job-dir", "job_dir", "parse_known_args")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCounts:
    """The number of replicas of each type beside the primary."""

    servers: int
    workers: int
    evaluators: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """What to run: `python -m module args`, in `folder`."""

    python: Path
    module: str
    folder: Path
    args: tuple[str, ...]  #: --job-dir, if there is one, comes last


def single_program(trainer: Trainer, env: Mapping[str, str]) -> Program:
    """Return one process without a cluster."""
    return _program(trainer, env, name=f"{MASTER}-replica-0", task={}, cluster={})


def cluster_programs(
    trainer: Trainer, env: Mapping[str, str], counts: ReplicaCounts, *, start_port: int, primary: str
) -> tuple[Program, ...]:
    """Return the processes of a cluster, the primary first. `primary` is its name in TF_CONFIG: chief or master.

    Ports count up from `start_port`: the primary's, then the parameter servers', then the workers'. Evaluators are not
    part of the cluster. PyTorch and JAX find each other by ranks, which are the primary's and then the workers'.
    """
    members = [(primary, MASTER, 1), (PS, PS, counts.servers), (WORKER, WORKER, counts.workers)]
    cluster: dict[str, list[str]] = {}
    port = start_port
    for key, _, count in members:
        if count:
            cluster[key] = [f"localhost:{port + index}" for index in range(count)]
        port += count
    members.append((EVALUATOR, EVALUATOR, counts.evaluators))
    unbuffered = {**env, "PYTHONUNBUFFERED": "1"}  # lines appear when they are written, not when a pipe is full
    first = ReplicaAddress("127.0.0.1", str(start_port))

    def variables(kind: str, index: int) -> dict[str, str]:
        if kind not in (MASTER, WORKER):
            return unbuffered
        rank = index if kind == MASTER else 1 + index
        return unbuffered | rank_variables(rank, 1 + counts.workers, first=first)

    return tuple(
        _program(
            trainer,
            variables(kind, index),
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
    """Raises `CannotProceedError` if one of these ports is taken."""
    if start_port + count - 1 > 65535:
        raise CannotProceedError(f"{count} ports from {start_port} on reach beyond 65535. Choose a lower --start-port.")
    for port in range(start_port, start_port + count):
        check_port(
            "127.0.0.1",
            port,
            advice="Each replica needs its own port; choose where they start with --start-port.",
        )


def check_module(package: Path, module: str) -> None:
    """Raises `InvalidArgumentError` if the module names this package and is not in it."""
    first, *rest = module.split(".")
    if first != package.name or not rest:
        return
    path = package.joinpath(*rest)
    if not path.with_suffix(".py").is_file() and not (path / "__main__.py").is_file():
        modules = sorted(f"{first}.{file.stem}" for file in package.glob("*.py") if file.stem != "__init__")
        raise InvalidArgumentError(
            f"There is no module {module} in {package.parent}. There is: {', '.join(modules) or 'none'}."
        )


def warnings(package: Path, module: str) -> list[str]:
    """Return warnings about what would fail or differ when this package is submitted as a job."""
    messages = []
    if not (package / "__init__.py").is_file():
        messages.append(
            f"[{package}] has no `__init__.py`, so it is not a Python package and can't be submitted. Add an empty one."
        )
    if not (package.parent / "setup.py").is_file() and not (package.parent / "pyproject.toml").is_file():
        messages.append(
            f"There is no setup.py beside [{package}]. A trainer is a typical Python package with a setup.py, so that "
            f"pip can install it. A submitted job gets one made for it, which names no requirements."
        )
    if not knows_job_dir(package):
        messages.append(
            f"Nothing in [{package}] seems to take the argument --job-dir, which a submitted job passes to {module} "
            f"when it has a job directory. It would fail there with `unrecognized arguments: --job-dir`. Add it: "
            f'parser.add_argument("--job-dir").'
        )
    return messages


def knows_job_dir(package: Path) -> bool:
    """Return whether a file of the package mentions --job-dir or accepts unknown arguments."""
    texts = (path.read_text(errors="replace") for path in package.rglob("*.py") if path.is_file())
    return any(word in text for text in texts for word in _JOB_DIR_MARKERS)


def explain_exit(status: int, package: Path, args: Sequence[str]) -> str:
    """Return a sentence about an exit status with a likely cause, or an empty string."""
    if status == 2 and "--job-dir" in args and not knows_job_dir(package):
        return (
            "The trainer rejected its arguments. It gets --job-dir and does not define it: add "
            'parser.add_argument("--job-dir") to it.'
        )
    return ""
