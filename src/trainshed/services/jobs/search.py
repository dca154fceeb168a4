"""Job search: the jobs of a project by part of the name, by label and by state, newest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainshed.domain.jobs.batch_prediction import BatchPrediction
from trainshed.domain.jobs.failure_text import diagnose
from trainshed.domain.jobs.gang import gang
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.page_tokens import bad_page_token, decode_page_token, encode_page_token
from trainshed.domain.times import rfc3339
from trainshed.errors import InvalidArgumentError
from trainshed.services.paging import START, RowCursor
from trainshed.store.job_search import JobSearchQuery, JobSearchStore

DEFAULT_ROWS = 100
MAX_ROWS = 500
MAX_LABELS = 64  #: labels per search; each is a condition of the query
MAX_TEXT_LENGTH = 500  #: characters of a search, longer than any name or label
_KINDS = {"": "", "training": Training.key, "prediction": BatchPrediction.key}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSearchRequest:
    """A search as a client sends it. Several states or labels are separated by commas."""

    search: str = ""
    state: str = ""
    label: str = ""
    kind: str = ""
    page_size: int = DEFAULT_ROWS
    page_token: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.page_size <= MAX_ROWS:
            raise InvalidArgumentError(f"`pageSize` is a number of jobs from 1 to {MAX_ROWS}.", field="pageSize")
        if self.kind not in _KINDS:
            raise InvalidArgumentError(f"`kind` is training or prediction, not {self.kind[:40]!r}.", field="kind")
        if len(self.search) > MAX_TEXT_LENGTH:
            raise InvalidArgumentError(f"`search` is a text of up to {MAX_TEXT_LENGTH} characters.", field="search")
        if len(labels := _split_list(self.label)) > MAX_LABELS or any(len(label) > MAX_TEXT_LENGTH for label in labels):
            raise InvalidArgumentError(
                f"`label` is up to {MAX_LABELS} labels of up to {MAX_TEXT_LENGTH} characters each.", field="label"
            )

    @property
    def states(self) -> tuple[JobState, ...]:
        """The requested states; all of them if none is requested."""
        names = _split_list(self.state.upper())
        if unknown := [name for name in names if name not in JobState.__members__]:
            raise InvalidArgumentError(
                f"{unknown[0][:40]!r} is not a state of a job; these are: {', '.join(JobState)}.", field="state"
            )
        return tuple(JobState(name) for name in names) or tuple(JobState)

    @property
    def query(self) -> JobSearchQuery:
        pairs = [text.partition("=") for text in _split_list(self.label)]
        labels = tuple((key, value if sign else None) for key, sign, value in pairs)
        return JobSearchQuery(text=self.search.strip(), labels=labels, key=_KINDS[self.kind])

    @property
    def before(self) -> RowCursor:
        if not self.page_token:
            return START
        match decode_page_token(self.page_token):
            case [int(created_us), str(job_id)] if 0 <= created_us < 2**63:
                return created_us, job_id
        raise bad_page_token()


class JobSearch:
    """Searches jobs. Thread-safe."""

    def __init__(self, store: JobSearchStore) -> None:
        self._store = store

    def page(self, project: str, request: JobSearchRequest) -> dict[str, Any]:
        """Return a page of rows, the next page token, and the counts of all states, whatever state was requested."""
        query = request.query
        jobs = self._store.page(
            project, query, states=request.states, before=request.before, limit=request.page_size + 1
        )
        page = jobs[: request.page_size]
        counts = self._store.counts(project, query)
        more = {"nextPageToken": encode_page_token((page[-1].order_us, page[-1].id))} if len(jobs) > len(page) else {}
        return {
            "jobs": [row_body(job) for job in page],
            **more,
            "counts": {"ALL": sum(counts.values())} | {state.value: counts.get(state, 0) for state in JobState},
        }


def row_body(job: Job) -> dict[str, Any]:
    return {
        "jobId": job.id,
        "state": job.state.value,
        "createTime": rfc3339(job.created_us),
        "startTime": rfc3339(job.started_us) if job.started_us is not None else None,
        "endTime": rfc3339(job.ended_us) if job.ended_us is not None else None,
        "labels": job.labels,
        "kind": "prediction" if isinstance(job.workload, BatchPrediction) else "training",
        "gang": gang_text(job),
        "cause": job.failure.cause.value if job.failure else None,
        "message": diagnose(job.failure, runtime=job.runtime).summary if job.failure else "",
    }


def gang_text(job: Job) -> str:
    """Return the gang in words, such as 1 master, 2 workers, 1 ps."""
    counts = Counter(replica.type for replica in gang(job.workload))
    return ", ".join(f"{count} {role}{'' if count == 1 or role == 'ps' else 's'}" for role, count in counts.items())


def _split_list(text: str) -> Sequence[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
