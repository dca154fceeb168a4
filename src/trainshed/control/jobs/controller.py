"""The job controller: compares stored jobs with what engines report, decides with `reconcile`, acts and records."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from trainshed.background import BackgroundLoop, PassFailures
from trainshed.control.jobs.engines import EngineRegistry, RegisteredEngine
from trainshed.control.jobs.poll_interval import PollInterval
from trainshed.control.jobs.queue import JobQueue
from trainshed.control.jobs.queue_walk import QueueWalk
from trainshed.control.jobs.running_limits import Limits, RunningLimits
from trainshed.control.jobs.usage_ledger import UsageLedger, slots_in_use
from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.jobs.queue_order import QueuedJob, QueuePolicy
from trainshed.domain.jobs.reconcile import (
    CancelAttempt,
    ObservedAttempt,
    StartAttempt,
    Transition,
    end_events,
    reconcile,
)
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.jobs.workload import Workload
from trainshed.domain.times import clock_time, now_us
from trainshed.engines import base
from trainshed.engines.base import Outage
from trainshed.errors import (
    CannotProceedError,
    DatabaseUnavailableError,
    EngineUnavailableError,
    TrainshedError,
    WriteConflictError,
)
from trainshed.node.crashpoints import crashpoint
from trainshed.store.jobs import JobStore
from trainshed.store.queue_index import JobKey

LOG = logging.getLogger("trainshed.control.jobs.controller")

IDLE_INTERVAL_S = 5.0  #: between passes when nothing runs; a new job or a cancel wakes the loop immediately
RESYNC_INTERVAL_S = 1.0  #: between reads of all rows while jobs run and nothing changes
RETRY_INTERVAL_S = 1.0  #: before a failed launch is tried again
MAX_LAUNCH_ATTEMPTS = 3  #: attempts to launch on an unavailable engine before the job fails
MAX_PASSED_OVER = 100  #: jobs that one pass records as passed over


class JobController:
    """Runs jobs. One thread owns the loop; a pool prepares and launches.

    `stop` and `join` end both. Jobs keep running.
    """

    def __init__(
        self,
        jobs: JobStore,
        registry: EngineRegistry,
        *,
        gang: Callable[[Job], base.GangRequest],
        max_launches: int,
        poll_s: float,
        queue: JobQueue | None = None,
        limits: Limits = lambda project, user: (),
        stored: Callable[[str], int] = lambda project: 0,
        clock: Callable[[], int] = now_us,
        check: Callable[[], None] = lambda: None,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        """`gang` returns the gang request of a job's current attempt. `max_launches` limits concurrent launches.

        `queue` has the order of queued jobs. None: one with the default policy, whose usage nobody stores. `limits`
        gives the limits of a project and of a user of it, `stored` the bytes in its buckets. `check` runs before each
        pass. If it raises `CannotProceedError`, the loop ends and `give_up` is called once.
        """
        self._jobs = jobs
        self._queue = queue or JobQueue(jobs, QueuePolicy(), UsageLedger(QueuePolicy(), clock=clock), clock=clock)
        self._registry, self._limits = registry, limits
        self._stored = stored
        self._running = RunningLimits(limits, {})  # of the pass that runs
        self._gang, self._clock = gang, clock
        self._outage_notices = OutageNotices(jobs)
        self._poll = PollInterval(poll_s)
        self._check, self._give_up = check, give_up
        self._observed: dict[str, Mapping[Path, ObservedAttempt]] = {}  # the last observed state, by engine
        self._failures = PassFailures(LOG, "job.step_failed")  # of the pass that runs
        self._wrote = False  # whether the database took a write since that pass began
        self._launching: set[tuple[str, str]] = set()  # added by the loop, removed by the pool (GIL)
        self._notify_trials: Callable[[], None] = lambda: None
        self._loop = BackgroundLoop("job-control", self._checked_step)
        # A launch may wait minutes for a runtime. With one thread per launch, none waits for another.
        self._pool = ThreadPoolExecutor(max_launches, thread_name_prefix="launch")

    def wake(self) -> None:
        """Start the next pass immediately. Thread-safe."""
        self._loop.wake()

    def on_trial_change(self, notify: Callable[[], None]) -> None:
        """Set what is called after a transition of a trial. Call it before `start`."""
        self._notify_trials = notify

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        """Start nothing new. Errors of a launch in progress no longer fail its job."""
        self._loop.stop()

    def join(self) -> None:
        """Blocks until the loop and the launches in progress end.

        Call it after `stop`. The next server does the rest.
        """
        self._loop.join()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._queue.ledger.write()

    def _checked_step(self) -> float:
        """Run one pass, if this server may act, and wait while nothing changes. Returns the seconds to the next one."""
        try:
            self._check()
        except CannotProceedError as exc:
            LOG.critical("control.refused reason=%s", exc)
            self._loop.stop()
            self._give_up()
            return 0.0
        if not self.step():
            return IDLE_INTERVAL_S
        self._poll_engines()
        return 0.0

    def _poll_engines(self) -> None:
        """Wait until an engine observes a change, until a wakeup, or until the rows are due again.

        Rows change only with a wakeup, so polling does not read them: training needs the same cores.
        """
        deadline = time.monotonic() + RESYNC_INTERVAL_S
        while not self._loop.pause(self._poll.seconds(self._observed)) and time.monotonic() < deadline:
            for name, observed in self._observed.items():
                if self._registry.table[name].engine.observe(observed.keys()) != observed:
                    return

    def step(self) -> bool:
        """Run one reconcile pass over all engines. Returns whether another one is needed soon.

        A job that fails is logged, and the next pass tries it again. Raises `UnavailableError` or `DiskFullError` if
        the database refused several writes and took none.
        """
        self._failures, self._wrote = PassFailures(LOG, "job.step_failed"), False
        active = self._jobs.active_rows()
        in_use = slots_in_use(active)
        self._queue.ledger.accrue(in_use)
        self._running = RunningLimits(self._limits, in_use, self._stored)
        self._outage_notices.forget(active.values)
        busy = bool(active.values)
        unreadable = {(row["project"], row["id"]) for row in active.unreadable}
        for name in self._registry.table:
            try:
                busy |= self._step_at(name, [job for job in active.values if job.engine == name], unreadable)
            except EngineUnavailableError as exc:  # other engines go on
                LOG.warning("engine.unavailable engine=%s reason=%s", name, exc)
                busy = True
        self._queue.ledger.write_if_due()
        if not self._wrote:
            self._failures.raise_outage()
        return busy or bool(self._failures)

    def _step_at(self, name: str, active: list[Job], unreadable: Set[tuple[str, ...]]) -> bool:
        """Run one reconcile pass over the jobs of one engine. Returns whether a queued job waits for capacity."""
        registered = self._registry.table[name]
        known = [(job, gang) for job in active if (gang := self._gang_of(job)) is not None]
        gangs = [gang for _, gang in known]
        watched = [(job, gang.folder) for job, gang in known if (job.project, job.id) not in self._launching]
        observed = registered.engine.observe([folder for _, folder in watched])
        self._observed[name] = observed
        outage = registered.engine.outage()
        for job in active:
            with self._isolated(job):
                self._outage_notices.tell(outage, job, now_us=self._clock())
        for job, folder in watched:
            with self._isolated(job):
                self._reconcile_job(job, registered.engine, folder, observed[folder])
        pending = self._admit(name, registered, gangs)
        unknown = {(job.project, job.id) for job in active} - {(gang.project, gang.job) for gang in gangs}
        self._release(registered, {gang.folder for gang in (*gangs, *pending)}, unreadable | unknown)
        return bool(pending)

    def _gang_of(self, job: Job) -> base.GangRequest | None:
        with self._isolated(job):
            return self._gang(job)
        return None

    @contextmanager
    def _isolated(self, job: Job) -> Iterator[None]:
        """A failure of one job must not block the others."""
        try:
            yield
        except Exception as exc:  # noqa: BLE001 - logged with the job's name
            self._failures.add(job.name, exc)

    def _reconcile_job(self, job: Job, engine: base.Engine, folder: Path, observed: ObservedAttempt) -> None:
        match reconcile(job, observed, now_us=self._clock()):
            case StartAttempt():
                self._start_launch(job)
            case CancelAttempt():
                engine.cancel(folder)
            case Transition(job=job_after, events=events) if job_after.ended:
                crashpoint("job.end.before_write")
                self._record(job_after, *events)
                crashpoint("job.end.after_write")
            case Transition(job=job_after, events=events):
                crashpoint("job.running.before_write")
                self._record(job_after, *events)
                crashpoint("job.running.after_write")

    def choose_engine(self, labels: Mapping[str, str], workload: Workload) -> str:
        """Return the engine for a new job. See `EngineRegistry.choose`."""
        return self._registry.choose(labels, workload)

    def shortfall(self, engine: str, training: Training) -> str:
        """Return a sentence about resources that the engine lacks for a training. Returns "" if it has all."""
        return self._registry.table[engine].shortfall(training)

    def quota_reason(self, job: Job) -> str:
        """Return why the limit of running replicas keeps a queued job waiting. Returns "" if it does not."""
        if not self._limits(job.project, job.user):
            return ""
        in_use = slots_in_use(self._jobs.active_rows())
        return RunningLimits(self._limits, in_use, self._stored).reason(job.project, job.user, job.replicas)

    def pending_reason(self, job: Job) -> str:
        """Return what capacity the job at the head of the queue waits for."""
        gangs = [self._gang(other) for other in self._jobs.active() if other.engine == job.engine]
        return self._registry.of(job).engine.pending_reason(self._gang(_admitted(job, self._clock())), gangs)

    def positions(self, jobs: Iterable[Job]) -> Mapping[JobKey, int]:
        """Return the queue positions, 1 for the head, of the queued ones among these jobs, by project and id."""
        return self._queue.positions(jobs)

    def next_of(self, project: str, *, limit: int) -> Sequence[tuple[str, int]]:
        """Return ids and positions of the next queued jobs of a project."""
        return self._queue.next_of(project, self._registry.table, limit=limit)

    def outage(self, job: Job) -> str:
        """Return a sentence about the outage of a job's engine. Returns "" if there is none."""
        outage = self._registry.of(job).engine.outage()
        return outage_message(outage) if outage is not None else ""

    def kill_replica(self, job: Job, replica: str, number: signal.Signals) -> None:
        """Send a signal to one replica of a job that runs. Returns before it is delivered."""
        self._registry.of(job).engine.kill(self._gang(job).folder, replica, number)

    def _admit(self, name: str, registered: RegisteredEngine, gangs: list[base.GangRequest]) -> list[base.GangRequest]:
        """Admit queued jobs in order while the engine reserves capacity for the whole gang. Extends `gangs`.

        A gang that waits is passed over by later ones that fit, until it is overdue: then nothing overtakes it. A gang
        that can never fit is passed over always. The database write is the admission: after a write conflict the job
        stays queued. One whose write fails does too, and loses its reservation. Returns the gangs that wait for one.
        """
        walk = QueueWalk(uniform_slots=registered.uniform_slots)
        pending: list[base.GangRequest] = []
        now = self._clock()
        for queued in self._queue.order(name):
            if self._running.reason(queued.project, queued.user, queued.replicas):
                continue  # nothing is passed over: others may use what this one may not
            if walk.cannot_fit(queued):
                continue
            if (job := self._queued_job(queued)) is None or (gang := self._gang_of(_admitted(job, now))) is None:
                continue
            result = registered.engine.reserve(gang, gangs, walk.ahead)
            if isinstance(result, base.Reserved):
                with self._isolated(job):
                    if self._admit_one(_admitted(job, now)):
                        gangs.append(gang)
                        self._queue.ledger.admit((job.project, job.user), job.replicas)
                        self._running.add(job.project, job.user, job.replicas)
                        walk.note_start()
                        continue
            if job.name not in self._failures.names:
                pending.append(gang)
            if isinstance(result, base.Pending) and result.blocks_queue:
                walk.wait(queued, gang, overdue=queued.is_overdue(self._queue.policy, now))
                if result.full or walk.is_over:
                    break
        self._record_passed_over(name, walk.passed_over, now)
        return pending

    def _queued_job(self, queued: QueuedJob) -> Job | None:
        """Return the job, if it is still queued and its row is readable."""
        job = self._jobs.find(queued.project, queued.id)
        return job if job is not None and job.state is JobState.QUEUED else None

    def _record_passed_over(self, engine: str, passed_over: Sequence[JobKey], now: int) -> None:
        try:
            self._jobs.pass_over(engine, passed_over[:MAX_PASSED_OVER], time_us=now)
        except TrainshedError as exc:  # a later pass finds them again
            LOG.warning("queue.not_recorded engine=%s reason=%s", engine, exc)

    def _admit_one(self, job: Job) -> bool:
        message = "Waiting for job to be provisioned."
        event = JobEvent(kind=JobEventKind.ADMITTED, message=message, time_us=self._clock())
        crashpoint("job.admit.before_write")
        recorded = self._record(job, event)
        crashpoint("job.admit.after_write")
        if recorded is not None:
            self._start_launch(recorded)
        return recorded is not None

    def _release(self, registered: RegisteredEngine, live: Collection[Path], kept: Set[tuple[str, ...]]) -> None:
        """Release reservations of attempts that ended, and of jobs that are no longer at the head of the queue.

        Attempts of the jobs in `kept` (project and id) keep theirs: such a job may run, but its gang is unknown. The
        folder of an attempt is PROJECT/JOB/NUMBER.
        """
        for attempt in registered.engine.reservations():
            if attempt not in live and attempt.parts[-3:-1] not in kept:
                registered.engine.release(attempt)

    def _start_launch(self, job: Job) -> None:
        self._launching.add((job.project, job.id))
        self._poll.note_launch()
        self._pool.submit(self._launch, job)

    def _launch(self, job: Job) -> None:
        """Prepare and launch one attempt. If its failure cannot be recorded, the next pass retries it."""
        try:
            if (reason := self._try_launch(job)) is not None:
                self._fail(job, reason)
        except Exception:  # the last frame of a pool thread: nothing else would report it
            LOG.exception("job.launch_failed project=%s job=%s", job.project, job.id)
            self._loop.stopping.wait(RETRY_INTERVAL_S)
        finally:
            self._launching.discard((job.project, job.id))
            self._loop.wake()

    def _try_launch(self, job: Job) -> str | None:
        """Launch an attempt. Returns why it failed. Returns None if it was launched or is no longer needed.

        Raises `DatabaseUnavailableError`: an outage of the database is no failure of the job. The next pass retries.
        """
        try:
            spec = self._registry.of(job).prepare(job)
            current = self._jobs.get(job.project, job.id)
            if current.state is JobState.PREPARING:
                self._launch_on_engine(self._registry.of(job).engine, spec)
            elif current.ended:  # while it was prepared
                self._registry.of(job).clear(job)
        except DatabaseUnavailableError:
            raise
        except TrainshedError as exc:
            return str(exc)
        except Exception as exc:  # a bug in Trainshed must not leave a job in PREPARING
            LOG.exception("job.launch_failed project=%s job=%s", job.project, job.id)
            return f"Trainshed itself failed to start this job: {exc}. The server's log has the details."
        return None

    def _launch_on_engine(self, engine: base.Engine, spec: base.AttemptSpec) -> None:
        for left in reversed(range(MAX_LAUNCH_ATTEMPTS)):
            try:
                crashpoint("job.launch.before")
                engine.launch(spec)
                crashpoint("job.launch.after")
                return
            except EngineUnavailableError as exc:
                if left == 0:
                    raise
                LOG.warning("engine.unavailable job=%s tries_left=%d reason=%s", spec.job, left, exc)
                self._loop.stopping.wait(RETRY_INTERVAL_S)

    def _fail(self, job: Job, reason: str) -> None:
        current = self._jobs.get(job.project, job.id)
        if current.state is not JobState.PREPARING or self._loop.stopping.is_set():
            return  # cancelled meanwhile: the loop ends it; or shutdown: the next server launches it
        # a supervisor that started too slowly must not keep running
        self._registry.of(job).engine.cancel(self._gang(current).folder)
        now, failure = self._clock(), Failure(cause=FailureCause.LAUNCH_FAILED, message=reason)
        failed = current.to(JobState.FAILED, now_us=now, failure=failure)
        self._record(failed, *end_events(failed, failure, now_us=now))

    def _record(self, job: Job, *events: JobEvent) -> Job | None:
        """Write a transition. Returns None on a write conflict: the next pass sees the other write."""
        try:
            recorded = self._jobs.record(job, events)
        except WriteConflictError:
            LOG.info("job.write_conflict project=%s job=%s", job.project, job.id)
            return None
        self._wrote = True
        LOG.info("job.transitioned project=%s job=%s state=%s", job.project, job.id, job.state)
        self._loop.wake()  # capacity may be free now
        if job.ended:
            self._registry.of(job).clear(job)
        if job.trial:
            self._notify_trials()
        return recorded


def _admitted(job: Job, now_us: int) -> Job:
    """Return the job as it is after admission, with the attempt that capacity is reserved for."""
    return job.to(JobState.PREPARING, now_us=now_us)


def outage_message(outage: Outage) -> str:
    """Return the sentence that the events of affected jobs show."""
    return f"{outage.engine} has not answered since {clock_time(outage.since_us)}. The job goes on when it does."


class OutageNotices:
    """Adds an event to affected jobs when an outage starts and ends.

    Remembers the last notice per job. Notices of an earlier server are read from the job's events.
    """

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs
        self._notified: dict[tuple[str, str], str] = {}  # the engine in outage, by the last notice of a job

    def tell(self, outage: Outage | None, job: Job, *, now_us: int) -> None:
        """Notify an active job of the state of its engine, unless it has a notice of that."""
        key = (job.project, job.id)
        if key not in self._notified:
            self._notified[key] = self._engine_in_outage(job)
        if self._notified[key] and outage is None:
            message = f"{self._notified[key]} answers again."
            self._jobs.tell(job, JobEvent(kind=JobEventKind.RECOVERY, message=message, time_us=now_us))
        elif outage is not None and not self._notified[key]:
            message = outage_message(outage)
            event = JobEvent(kind=JobEventKind.OUTAGE, message=message, subject=outage.engine, time_us=now_us)
            self._jobs.tell(job, event)
        self._notified[key] = outage.engine if outage is not None else ""

    def forget(self, active: Sequence[Job]) -> None:
        """Drop the state of jobs that are not among these."""
        keys = {(job.project, job.id) for job in active}
        self._notified = {key: notified for key, notified in self._notified.items() if key in keys}

    def _engine_in_outage(self, job: Job) -> str:
        """Return the engine of the job's last outage notice. Returns "" if a later event tells of its recovery."""
        for event in reversed(self._jobs.events(job.project, job.id)):
            if event.kind in (JobEventKind.OUTAGE, JobEventKind.RECOVERY):
                return event.subject
        return ""
