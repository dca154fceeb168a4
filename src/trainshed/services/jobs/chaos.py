"""Breaking a job on purpose: a signal to one of its replicas, to see how the gang gets over it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainshed.domain.jobs import gang
from trainshed.domain.jobs.job import Job, JobState
from trainshed.domain.jobs.workload import workload_of
from trainshed.domain.json_fields import message, string
from trainshed.engines.base import Engine
from trainshed.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from trainshed.store.jobs import JobStore

_BODY = message({"kill": string, "signal": string})


class Chaos:
    """Threads may share it. `engine` is the one that a job runs on, `folder` where its current attempt lives."""

    def __init__(self, jobs: JobStore, *, engine: Callable[[Job], Engine], folder: Callable[[Job], Path]) -> None:
        self._jobs = jobs
        self._engine = engine
        self._folder = folder

    def kill(self, project: str, job_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a replica a signal, SIGKILL unless another is named. Returns when it is asked for, not when it came.

        `FailedPreconditionError` for a job that does not run, `NotFoundError` for a replica that it does not have.
        """
        asked = _BODY(body, "")
        if "kill" not in asked:
            raise InvalidArgumentError("Say which replica to kill, such as worker-replica-0.", field="kill")
        number = _signal(asked.get("signal", "KILL"))
        job = self._jobs.get(project, job_id)
        replicas = [each.name for each in gang.gang(workload_of(job.body))]
        if asked["kill"] not in replicas:
            raise NotFoundError(
                f"Job {job.id} has no replica {asked['kill']}. Its replicas are: {', '.join(replicas)}."
            )
        if job.state is not JobState.RUNNING:
            raise FailedPreconditionError(
                f"Job {job.id} is {job.state}. Only replicas of a job that is RUNNING can be killed."
            )
        self._engine(job).kill(self._folder(job), asked["kill"], number)
        return {"replica": asked["kill"], "signal": number.name}


def _signal(name: str) -> signal.Signals:
    word = name.upper().removeprefix("SIG")
    try:
        return signal.Signals[f"SIG{word}"]
    except KeyError:
        raise InvalidArgumentError(
            f"There is no signal {name!r}. Usual ones are KILL, TERM, SEGV, ABRT, STOP and CONT.", field="signal"
        ) from None
