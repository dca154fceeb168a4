"""Alerts of a project: what needs a person, with a remedy and a link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from trainshed.domain.jobs.job import HangKind, Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.models.version import VersionState
from trainshed.services.console.machine_metrics import MachineSample
from trainshed.services.jobs.reports import JobReports, hang_remedy
from trainshed.store.models import VersionSummary

PENDING_GRACE_US = 600_000_000  #: a job may be pending this long without an alert
FULL_FRACTION, NEARLY_FULL_FRACTION = 0.02, 0.08  #: fraction of the disk that is free
FULL_BYTES, NEARLY_FULL_BYTES = 1 << 30, 8 << 30  #: both limits must be exceeded: a large disk has enough space at 5 %
_MAX_PER_KIND = 5  #: alerts per kind


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertInputs:
    """All values that alerts are derived from."""

    project: str
    now_us: int
    failed: Sequence[Job]  #: in the last day, newest first
    failed_count: int
    active: Sequence[Job]
    queued: Sequence[tuple[Job, str]]  #: with their pending reasons
    versions: Sequence[VersionSummary]
    unhealthy: Sequence[tuple[str, str, str]]  #: model, version, reason
    machine: MachineSample


def alerts_for(inputs: AlertInputs, reports: JobReports) -> list[dict[str, Any]]:
    """Return the alerts, errors first."""
    items = [
        *_failed_jobs(inputs, reports),
        *_hung(inputs, reports),
        *_versions(inputs),
        *_disk(inputs),
        *_waiting(inputs),
        *_restarted(inputs, reports),
    ]
    return sorted(items, key=lambda item: item["severity"] != "error")


def _item(
    inputs: AlertInputs, severity: str, message: str, remedy: str, *path_parts: str, query: str = ""
) -> dict[str, Any]:
    path = "/".join(quote(part, safe="") for part in ("p", inputs.project, *path_parts))
    return {"severity": severity, "message": message, "remedy": remedy, "link": f"#/{path}{query}"}


def _failed_jobs(inputs: AlertInputs, reports: JobReports) -> Iterator[dict[str, Any]]:
    for job in inputs.failed[:_MAX_PER_KIND]:
        diagnosis = reports.failures.diagnose(job)
        remedy = diagnosis.remedy or "Its page shows the lines that tell of it."
        yield _item(inputs, "error", f"Job {job.id} failed. {diagnosis.summary}", remedy, "jobs", job.id)
    if (more := inputs.failed_count - _MAX_PER_KIND) > 0:
        words = "1 more job" if more == 1 else f"{more:,} more jobs"
        yield _item(
            inputs, "error", f"{words} failed in the last 24 hours.", "See them all.", "jobs", query="?state=FAILED"
        )


def _hung(inputs: AlertInputs, reports: JobReports) -> Iterator[dict[str, Any]]:
    """One alert for each job. Of several replicas it shows the one that the others seem to wait for."""
    jobs = [
        (job, hangs)
        for job in inputs.active
        if job.state is JobState.RUNNING and (hangs := [hang for hang in reports.hangs(job) if hang.ended_us is None])
    ]
    for job, hangs in jobs[:_MAX_PER_KIND]:
        order = sorted(hangs, key=lambda hang: (hang.name != hang.suspect, hang.kind is not HangKind.STOPPED))
        first, more = order[0], len(hangs) - 1
        text = f"Job {job.id}: {first.sentence}"
        if more:
            text += f" {more} more {'replica hangs' if more == 1 else 'replicas hang'}."
        waits = all(hang.working for hang in hangs)
        yield _item(inputs, "warning" if waits else "error", text, hang_remedy(first), "jobs", job.id)


def _versions(inputs: AlertInputs) -> Iterator[dict[str, Any]]:
    for model, version, reason in inputs.unhealthy[:_MAX_PER_KIND]:
        text = f"Version {version} of model {model} does not answer. {reason}"
        remedy = "It is tried again by itself. Its log has the last output; a rollback restores the previous version."
        yield _item(inputs, "error", text.strip(), remedy, "models", model)
    failed = [each for each in inputs.versions if each.state is VersionState.FAILED]
    for each in failed[:_MAX_PER_KIND]:
        text = f"Version {each.id} of model {each.model} could not be created. {_first_line(each.error)}"
        remedy = "Delete it, put right what the error names, and create it again."
        yield _item(inputs, "warning", text.strip(), remedy, "models", each.model)


def _disk(inputs: AlertInputs) -> Iterator[dict[str, Any]]:
    free, share = inputs.machine.disk_free_bytes, inputs.machine.disk_free_bytes / max(1, inputs.machine.disk_bytes)
    full = share < FULL_FRACTION and free < FULL_BYTES
    if full or (share < NEARLY_FULL_FRACTION and free < NEARLY_FULL_BYTES):
        text = f"The disk is {'full' if full else 'nearly full'}: {free / (1 << 30):.1f} GiB are free."
        remedy = (
            "Delete what is no longer needed: old checkpoints and exports in buckets, and runtimes that nothing uses "
            "(trainshed runtimes remove)."
        )
        yield _item(inputs, "error" if full else "warning", text, remedy, "buckets")


def _waiting(inputs: AlertInputs) -> Iterator[dict[str, Any]]:
    overdue = [(job, reason) for job, reason in inputs.queued if inputs.now_us - job.created_us > PENDING_GRACE_US]
    for job, reason in overdue[:_MAX_PER_KIND]:
        text = f"Job {job.id} has waited for {_minutes(inputs, job)}. {reason}"
        remedy = (
            "Cancel a job that runs, or make room: on this machine with the setting slots, on a cluster with more "
            "machines or smaller machine types."
        )
        yield _item(inputs, "warning", text.strip(), remedy, "jobs", job.id)
    slow = [
        job
        for job in inputs.active
        if job.state is JobState.PREPARING and inputs.now_us - job.created_us > PENDING_GRACE_US
    ]
    for job in slow[:_MAX_PER_KIND]:
        text = f"Job {job.id} has been made ready for {_minutes(inputs, job)}."
        remedy = "Its log says what it waits for; a runtime that is built for the first time takes some minutes."
        yield _item(inputs, "warning", text, remedy, "jobs", job.id)


def _restarted(inputs: AlertInputs, reports: JobReports) -> Iterator[dict[str, Any]]:
    restarted = [(job, sentences) for job in inputs.active if (sentences := reports.restarts(job))]
    for job, sentences in restarted[:_MAX_PER_KIND]:
        times = "once" if len(sentences) == 1 else f"{len(sentences)} times"
        text = f"Job {job.id} lost a replica {times}: {sentences[-1]}."
        remedy = "The job continues by itself. If it happens again, check the replica's last log lines and the memory."
        yield _item(inputs, "warning", text, remedy, "jobs", job.id, query="?tab=replicas")


def _minutes(inputs: AlertInputs, job: Job) -> str:
    minutes = (inputs.now_us - job.created_us) // 60_000_000
    return f"{minutes} minutes" if minutes < 120 else f"{minutes // 60} hours"


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:300]
