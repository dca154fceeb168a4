"""The job controller: compares job rows with what engines report, decides with `reconcile`, acts and writes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainshed.control.jobs.engines import EngineRegistry, RegisteredEngine
from trainshed.domain.jobs.job import Job, JobEvent, JobState
from trainshed.domain.jobs.reconcile import CancelAttempt, ObservedAttempt, StartAttempt, Transition, reconcile
from trainshed.domain.times import clock_time, now_us
from trainshed.engines import base
from trainshed.engines.base import Outage
from trainshed.errors import CannotProceedError, EngineUnavailableError, TrainshedError, WriteConflictError
from trainshed.store.jobs import JobStore

LOG = logging.getLogger("trainshed.control.jobs.controller")

IDLE_S = 5.0  #: between looks when nothing runs; a new job or a cancel wakes the loop at once
WHOLE_LOOK_S = 1.0  #: between looks at the rows while something runs and nothing is new
TRIES = 3  #: how often an engine that is down is asked before the job fails
BATCH = 8  #: queued jobs that are read at once
_AWAY = " has not answered since "
_BACK = " answers again."


class JobController:
    """One thread owns the loop, a small pool prepares and launches. `stop` and `join` end both; jobs go on."""

    def __init__(
        self,
        jobs: JobStore,
        sites: EngineRegistry,
        *,
        gang: Callable[[Job], base.GangRequest],
        at_once: int,
        poll_s: float,
        clock: Callable[[], int] = now_us,
        check: Callable[[], None] = lambda: None,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        """`gang` is the current attempt of a job before it is prepared; `at_once` how many launches there may be.

        `check` is asked before each step whether we may go on; if it is `CannotProceedError`, `give_up` is called once.
        """
        self._jobs = jobs
        self._sites = sites
        self._gang = gang
        self._absences = OutageNotices(jobs)
        self._poll_s = poll_s
        self._clock = clock
        self._check = check
        self._give_up = give_up
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._seen: dict[str, Mapping[Path, ObservedAttempt]] = {}  # by engine
        self._launching: set[tuple[str, str]] = set()  # guarded by the GIL: added by the loop, removed by the pool
        self._thread = threading.Thread(target=self._loop, name="job-control", daemon=True)
        # A launch may wait minutes for a runtime. There are as many threads as launches, so none waits for another.
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="launch")

    def wake(self) -> None:
        """There is something new to look at. Callable from any thread."""
        self._news.set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Begin nothing new. What a launch under way runs into from now on is not held against its job."""
        self._stopping.set()
        self._news.set()

    def join(self) -> None:
        """Wait, after `stop`, for the loop and the launches under way; the rest is left to the next server."""
        self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._news.clear()
            try:
                self._check()
                self._rest(busy=self.step())
                continue
            except CannotProceedError as exc:
                LOG.critical("control.refused reason=%s", exc)
                self._give_up()
                return
            except TrainshedError as exc:
                LOG.warning("control.step_failed reason=%s", exc)
            except Exception:  # the loop outlives any single failure, and each one is in the log
                LOG.exception("control.step_failed")
            self._news.wait(self._poll_s)

    def _rest(self, *, busy: bool) -> None:
        """Until it is time for the next look: while jobs run, that is when one of them has something new.

        Rows only change with news, so they are not read for each glance: training needs the same cores.
        """
        if not busy:
            self._news.wait(IDLE_S)
            return
        until = time.monotonic() + WHOLE_LOOK_S
        while not self._news.wait(self._poll_s) and time.monotonic() < until:
            for name, seen in self._seen.items():
                if self._sites.table[name].engine.observe(seen.keys()) != seen:
                    return

    def step(self) -> bool:
        """One look at everything. Returns whether any job needs another look soon."""
        active = self._jobs.active()
        self._absences.forget(active)
        busy = bool(active)
        for name in self._sites.table:
            try:
                busy |= self._step_at(name, [job for job in active if job.engine == name])
            except EngineUnavailableError as exc:  # the others are not held up
                LOG.warning("engine.unavailable engine=%s reason=%s", name, exc)
                busy = True
        return busy

    def _step_at(self, name: str, active: list[Job]) -> bool:
        """One look at the jobs of one engine. Returns whether one of its queue waits for room."""
        site, gangs = self._sites.table[name], [self._gang(job) for job in active]
        settled = [
            (job, gang.folder)
            for job, gang in zip(active, gangs, strict=True)
            if (job.project, job.id) not in self._launching
        ]
        seen = site.engine.observe([folder for _, folder in settled])
        self._seen[name] = seen
        self._absences.tell(site.engine.outage(), active, now_us=self._clock())
        for job, folder in settled:
            try:
                self._act(job, site.engine, folder, seen[folder])
            except Exception:  # one job that can't be dealt with must not hold up the others
                LOG.exception("job.step_failed project=%s job=%s", job.project, job.id)
        waiting = self._admit(name, site, gangs)
        self._release(site, {gang.folder for gang in (*gangs, *waiting)})
        return bool(waiting)

    def _act(self, job: Job, engine: base.Engine, folder: Path, seen: ObservedAttempt) -> None:
        match reconcile(job, seen, now_us=self._clock()):
            case StartAttempt():
                self._start_launch(job)
            case CancelAttempt():
                engine.cancel(folder)
            case Transition(job=moved, events=events):
                self._record(moved, *events)

    def pending_reason(self, job: Job) -> str:
        """What a job at the head of the queue is told about the room that it waits for."""
        gangs = [self._gang(other) for other in self._jobs.active() if other.engine == job.engine]
        return self._sites.of(job).engine.pending_reason(self._gang(_claimed(job, self._clock())), gangs)

    def outage(self, job: Job) -> str:
        """A sentence for a job whose place does not answer; empty if it does."""
        away = self._sites.of(job).engine.outage()
        return outage_message(away) if away is not None else ""

    def _admit(self, name: str, site: RegisteredEngine, gangs: list[base.GangRequest]) -> list[base.GangRequest]:
        """Claim queued jobs, best first, as long as there is room for the whole gang of each. Adds those to `gangs`.

        The first that does not fit holds up those behind it: small jobs must not overtake a large one for ever. Only
        what can't fit at all, whatever ends, holds nobody up. The claim is the write; who loses the race lets go.
        Returns the gangs that wait for room which their engine was asked to make.
        """
        waiting: list[base.GangRequest] = []
        while jobs := self._jobs.queued(engine=name, limit=len(waiting) + BATCH)[len(waiting) :]:
            for job in jobs:
                claim = _claimed(job, self._clock())
                gang = self._gang(claim)
                answer = site.engine.reserve(gang, gangs)
                if isinstance(answer, base.Reserved) and self._claim(claim):
                    gangs.append(gang)
                    continue
                waiting.append(gang)
                if isinstance(answer, base.Pending) and answer.blocks_queue:
                    return waiting
        return waiting

    def _claim(self, claim: Job) -> bool:
        waiting = JobEvent(message="Waiting for job to be provisioned.", time_us=self._clock())
        mine = self._record(claim, waiting)
        if mine is not None:
            self._start_launch(mine)
        return mine is not None

    def _release(self, site: RegisteredEngine, live: Collection[Path]) -> None:
        """Give back the room of attempts that ended, and of jobs that are not next in the queue any more."""
        for attempt in site.engine.reservations():
            if attempt not in live:
                site.engine.release(attempt)

    def _start_launch(self, job: Job) -> None:
        self._launching.add((job.project, job.id))
        self._pool.submit(self._launch, job)

    def _launch(self, job: Job) -> None:
        """Prepare and start one attempt. If even its failure can't be written down, the next look tries it again."""
        try:
            if (reason := self._try_launch(job)) is not None:
                self._fail(job, reason)
        except Exception:  # the end of a thread of the pool: nobody else would hear of it
            LOG.exception("job.launch_failed project=%s job=%s", job.project, job.id)
        finally:
            self._launching.discard((job.project, job.id))
            self._news.set()

    def _try_launch(self, job: Job) -> str | None:
        """Why the attempt can't be started; None if it was, or need not be any more."""
        try:
            launch = self._sites.of(job).prepare(job)
            if self._jobs.get(job.project, job.id).state is JobState.PREPARING:
                self._launch_on_engine(self._sites.of(job).engine, launch)
        except TrainshedError as exc:
            return str(exc)
        except Exception as exc:  # a job must not hang in PREPARING because of an error of ours
            LOG.exception("job.launch_failed project=%s job=%s", job.project, job.id)
            return f"Trainshed itself failed to start this job: {exc}. The server's log has the details."
        return None

    def _launch_on_engine(self, engine: base.Engine, launch: base.AttemptSpec) -> None:
        for left in reversed(range(TRIES)):
            try:
                engine.launch(launch)
                return
            except EngineUnavailableError as exc:
                if left == 0:
                    raise
                LOG.warning("engine.unavailable job=%s tries_left=%d reason=%s", launch.job, left, exc)
                self._stopping.wait(1.0)

    def _fail(self, job: Job, reason: str) -> None:
        current = self._jobs.get(job.project, job.id)
        if current.state is not JobState.PREPARING or self._stopping.is_set():
            return  # cancelled meanwhile: the loop ends it; or we are stopping: the next server launches it
        # a supervisor that was only too slow to start must not go on
        self._sites.of(job).engine.cancel(self._gang(current).folder)
        now = self._clock()
        events = (
            JobEvent(message=reason, time_us=now, severity="ERROR"),
            JobEvent(message="Job failed.", time_us=now, severity="ERROR"),
        )
        self._record(current.to(JobState.FAILED, now_us=now, error=reason), *events)

    def _record(self, job: Job, *events: JobEvent) -> Job | None:
        """Write, unless someone else wrote since the job was read; then the next look sees what they wrote."""
        try:
            recorded = self._jobs.record(job, events)
        except WriteConflictError:
            LOG.info("job.write_conflict project=%s job=%s", job.project, job.id)
            return None
        LOG.info("job.transitioned project=%s job=%s state=%s", job.project, job.id, job.state)
        self._news.set()  # there may be room for another one now
        return recorded


def _claimed(job: Job, now_us: int) -> Job:
    """The job as it is once it has left the queue: with the attempt that room is asked for."""
    return job.to(JobState.PREPARING, now_us=now_us)


def outage_message(away: Outage) -> str:
    """For people who look at a job that runs there."""
    return f"{away.engine}{_AWAY}{clock_time(away.since_us)}. The job goes on when it does."


class OutageNotices:
    """Remembers whom it told what. What an earlier server told is read in the job's history."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs
        self._told: dict[tuple[str, str], bool] = {}  # whether the last word to a job was that its place is away

    def tell(self, away: Outage | None, active: Sequence[Job], *, now_us: int) -> None:
        """Say it to those active jobs of one engine that don't know yet."""
        for job in active:
            key = (job.project, job.id)
            if key not in self._told:
                self._told[key] = self._was_told(job)
            if self._told[key] and away is None:
                self._jobs.tell(job, JobEvent(message=f"{self._what(job)}{_BACK}", time_us=now_us))
            elif away is not None and not self._told[key]:
                self._jobs.tell(job, JobEvent(message=outage_message(away), time_us=now_us))
            self._told[key] = away is not None

    def forget(self, active: Sequence[Job]) -> None:
        """Keep nothing of jobs that are not among these."""
        alive = {(job.project, job.id) for job in active}
        self._told = {key: told for key, told in self._told.items() if key in alive}

    def _was_told(self, job: Job) -> bool:
        return bool(self._what(job))

    def _what(self, job: Job) -> str:
        """The place that the job was last told to be away, if it was not told since that it is back."""
        for event in reversed(self._jobs.events(job.project, job.id)):
            if event.message.endswith(_BACK):
                return ""
            if _AWAY in event.message:
                return event.message.partition(_AWAY)[0]
        return ""
