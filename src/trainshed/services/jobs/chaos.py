"""Fault injection: sends a signal to one replica of a job, to test how the gang recovers."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from trainshed.domain.jobs import gang
from trainshed.domain.jobs.states import JobState
from trainshed.domain.json_fields import message, string
from trainshed.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from trainshed.services.ports import ReplicaKiller
from trainshed.store.jobs import JobStore

_BODY = message({"kill": string, "signal": string})


class Chaos:
    """Injects faults into jobs. Thread-safe."""

    def __init__(self, jobs: JobStore, killer: ReplicaKiller) -> None:
        self._jobs = jobs
        self._killer = killer

    def kill(self, project: str, job_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a signal to a replica, by default SIGKILL. Returns before it is delivered.

        Raises `FailedPreconditionError` if the job does not run, and `NotFoundError` for an unknown replica.
        """
        request = _BODY(body, "")
        if "kill" not in request:
            raise InvalidArgumentError("Say which replica to kill, such as worker-replica-0.", field="kill")
        number = _signal(request.get("signal", "KILL"))
        job = self._jobs.get(project, job_id)
        replicas = [each.name for each in gang.gang(job.workload)]
        if request["kill"] not in replicas:
            raise NotFoundError(
                f"Job {job.id} has no replica {request['kill']}. Its replicas are: {', '.join(replicas)}."
            )
        if job.state is not JobState.RUNNING:
            raise FailedPreconditionError(
                f"Job {job.id} is {job.state}. Only replicas of a job that is RUNNING can be killed."
            )
        self._killer.kill_replica(job, request["kill"], number)
        return {"replica": request["kill"], "signal": number.name}


def _signal(name: str) -> signal.Signals:
    suffix = name.upper().removeprefix("SIG")
    try:
        return signal.Signals[f"SIG{suffix}"]
    except KeyError:
        raise InvalidArgumentError(
            f"There is no signal {name!r}. Usual ones are KILL, TERM, SEGV, ABRT, STOP and CONT.", field="signal"
        ) from None
