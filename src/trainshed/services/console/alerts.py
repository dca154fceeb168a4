"""What in a project needs a person: each with what to do about it, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from trainshed.domain.jobs.diagnosis import Diagnosis
from trainshed.domain.jobs.job import Job, JobState
from trainshed.domain.models.version import VersionState
from trainshed.services.console.machine_metrics import MachineSample
from trainshed.store.models import VersionSummary

LONG_US = 600_000_000  #: that a job waits without a word about it
FULL, NEARLY_FULL = 0.02, 0.08  #: share of the disk that is free
FEW_BYTES, SOME_BYTES = 1 << 30, 8 << 30  #: and it takes both: a large disk has room at 5 %
_MOST = 5  #: of one kind


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertInputs:
    """All that is looked at."""

    project: str
    now_us: int
    failed: Sequence[Job]  #: in the last day, newest first
    failed_count: int
    active: Sequence[Job]
    queued: Sequence[tuple[Job, str]]  #: with the reason why each waits
    versions: Sequence[VersionSummary]
    unhealthy: Sequence[tuple[str, str, str]]  #: model, version, reason
    machine: MachineSample


def alerts_for(
    scene: AlertInputs, *, diagnosed: Callable[[Job], Diagnosis], restarts: Callable[[Job], Sequence[str]]
) -> list[dict[str, Any]]:
    """Errors first."""
    items = [
        *_failed_jobs(scene, diagnosed),
        *_versions(scene),
        *_disk(scene),
        *_waiting(scene),
        *_restarted(scene, restarts),
    ]
    return sorted(items, key=lambda item: item["severity"] != "error")


def _item(scene: AlertInputs, severity: str, text: str, remedy: str, *place: str, query: str = "") -> dict[str, Any]:
    path = "/".join(quote(part, safe="") for part in ("p", scene.project, *place))
    return {"severity": severity, "text": text, "remedy": remedy, "link": f"#/{path}{query}"}


def _failed_jobs(scene: AlertInputs, diagnosed: Callable[[Job], Diagnosis]) -> Iterator[dict[str, Any]]:
    for job in scene.failed[:_MOST]:
        found = diagnosed(job)
        remedy = found.remedy or "Its page shows the lines that tell of it."
        yield _item(scene, "error", f"Job {job.id} failed. {found.summary}", remedy, "jobs", job.id)
    if (more := scene.failed_count - _MOST) > 0:
        words = "1 more job" if more == 1 else f"{more:,} more jobs"
        yield _item(
            scene, "error", f"{words} failed in the last 24 hours.", "See them all.", "jobs", query="?state=FAILED"
        )


def _versions(scene: AlertInputs) -> Iterator[dict[str, Any]]:
    for model, version, reason in scene.unhealthy[:_MOST]:
        text = f"Version {version} of model {model} does not answer. {reason}"
        remedy = "It is tried again by itself. Its log has its last words; a rollback leads to the version before."
        yield _item(scene, "error", text.strip(), remedy, "models", model)
    failed = [each for each in scene.versions if each.state is VersionState.FAILED]
    for each in failed[:_MOST]:
        text = f"Version {each.id} of model {each.model} could not be created. {_first_line(each.error)}"
        remedy = "Delete it, put right what the error names, and create it again."
        yield _item(scene, "warning", text.strip(), remedy, "models", each.model)


def _disk(scene: AlertInputs) -> Iterator[dict[str, Any]]:
    free, share = scene.machine.disk_free_bytes, scene.machine.disk_free_bytes / max(1, scene.machine.disk_bytes)
    full = share < FULL and free < FEW_BYTES
    if full or (share < NEARLY_FULL and free < SOME_BYTES):
        text = f"The disk is {'full' if full else 'nearly full'}: {free / (1 << 30):.1f} GiB are free."
        remedy = (
            "Delete what is no longer needed: old checkpoints and exports in buckets, and runtimes that nothing uses "
            "(trainshed runtimes remove)."
        )
        yield _item(scene, "error" if full else "warning", text, remedy, "buckets")


def _waiting(scene: AlertInputs) -> Iterator[dict[str, Any]]:
    late = [(job, why) for job, why in scene.queued if scene.now_us - job.created_us > LONG_US]
    for job, why in late[:_MOST]:
        text = f"Job {job.id} has waited for {_minutes(scene, job)}. {why}"
        remedy = (
            "Cancel a job that runs, or make room: on this machine with the setting slots, on a cluster with more "
            "machines or smaller machine types."
        )
        yield _item(scene, "warning", text.strip(), remedy, "jobs", job.id)
    slow = [job for job in scene.active if job.state is JobState.PREPARING and scene.now_us - job.created_us > LONG_US]
    for job in slow[:_MOST]:
        text = f"Job {job.id} has been made ready for {_minutes(scene, job)}."
        remedy = "Its log says what it waits for; a runtime that is built for the first time takes some minutes."
        yield _item(scene, "warning", text, remedy, "jobs", job.id)


def _restarted(scene: AlertInputs, restarts: Callable[[Job], Sequence[str]]) -> Iterator[dict[str, Any]]:
    told = [(job, sentences) for job in scene.active if (sentences := restarts(job))]
    for job, sentences in told[:_MOST]:
        times = "once" if len(sentences) == 1 else f"{len(sentences)} times"
        text = f"Job {job.id} lost a replica {times}: {sentences[-1]}."
        remedy = (
            "It goes on by itself. If that happens again, look at the last lines of the replica, and at the memory."
        )
        yield _item(scene, "warning", text, remedy, "jobs", job.id, query="?tab=replicas")


def _minutes(scene: AlertInputs, job: Job) -> str:
    minutes = (scene.now_us - job.created_us) // 60_000_000
    return f"{minutes} minutes" if minutes < 120 else f"{minutes // 60} hours"


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:300]
