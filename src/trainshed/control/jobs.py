"""The loop that makes the world match the job rows: it looks, decides with `domain.plan`, acts, and writes down."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainshed.domain.jobs import Event, Job, JobState
from trainshed.domain.plan import Cancel, Launch, Move, Room, Sighting, plan
from trainshed.domain.times import now_us
from trainshed.engines import base
from trainshed.errors import EngineDown, Overtaken, Refused, TrainshedError
from trainshed.store.jobs import JobStore

LOG = logging.getLogger("trainshed.control.jobs")

IDLE_S = 5.0  #: between looks when nothing runs; a new job or a cancel wakes the loop at once
WHOLE_LOOK_S = 1.0  #: between looks at the rows while something runs and nothing is new
TRIES = 3  #: how often an engine that is down is asked before the job fails


class JobControl:
    """One thread owns the loop, a small pool prepares and launches. `stop` and `join` end both; jobs go on."""

    def __init__(
        self,
        jobs: JobStore,
        engine: base.Engine,
        *,
        folder: Callable[[Job], Path],
        prepare: Callable[[Job], base.Launch],
        size: Callable[[Job], int],
        slots: int,
        poll_s: float,
        clock: Callable[[], int] = now_us,
        check: Callable[[], None] = lambda: None,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        """`check` is asked before each step whether we may go on; if it is `Refused`, `give_up` is called once."""
        self._jobs = jobs
        self._engine = engine
        self._folder = folder
        self._prepare = prepare
        self._size = size
        self._slots = slots
        self._poll_s = poll_s
        self._clock = clock
        self._check = check
        self._give_up = give_up
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._seen: Mapping[Path, Sighting] = {}
        self._launching: set[tuple[str, str]] = set()  # guarded by the GIL: added by the loop, removed by the pool
        self._thread = threading.Thread(target=self._loop, name="job-control", daemon=True)
        # A launch may wait minutes for a runtime. There are never more of them than slots, so none waits for a thread.
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix="launch")

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
            except Refused as exc:
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
            if self._engine.observe(self._seen.keys()) != self._seen:
                return

    def step(self) -> bool:
        """One look at everything. Returns whether any job needs another look soon."""
        active = self._jobs.active()
        settled = [job for job in active if (job.project, job.id) not in self._launching]
        seen = self._engine.observe([self._folder(job) for job in settled])
        self._seen = seen
        for job in settled:
            try:
                self._act(job, seen[self._folder(job)])
            except Exception:  # one job that can't be dealt with must not hold up the others
                LOG.exception("job.step_failed project=%s job=%s", job.project, job.id)
        admitted = self._admit(self._slots - sum(map(self._size, active)), alone=not active)
        return bool(active) or admitted > 0

    def _act(self, job: Job, seen: Sighting) -> None:
        match plan(job, seen, now_us=self._clock()):
            case Launch():
                self._start_launch(job)
            case Cancel():
                self._engine.cancel(self._folder(job))
            case Move(job=moved, events=events):
                self._record(moved, *events)

    def room(self) -> Room:
        """How many replicas could start now, and how many there may be in all."""
        taken = sum(map(self._size, self._jobs.active()))
        return Room(free=max(0, self._slots - taken), slots=self._slots)

    def _admit(self, free: int, *, alone: bool) -> int:
        """Claim queued jobs, best first, as long as the whole gang of each fits. Returns how many.

        The first that does not fit holds up those behind it: small jobs must not overtake a large one for ever. A gang
        larger than the machine runs when it has the machine for itself. The claim is the write; who loses the race
        lets go.
        """
        claimed = 0
        for job in self._jobs.queued(limit=max(free, 1)):
            size = self._size(job)
            if size > free and not (alone and claimed == 0):
                break
            free -= size
            now = self._clock()
            waiting = Event(text="Waiting for job to be provisioned.", time_us=now)
            mine = self._record(job.to(JobState.PREPARING, now_us=now), waiting)
            if mine is not None:
                claimed += 1
                self._start_launch(mine)
        return claimed

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
            launch = self._prepare(job)
            if self._jobs.get(job.project, job.id).state is JobState.PREPARING:
                self._launch_on_engine(launch)
        except TrainshedError as exc:
            return str(exc)
        except Exception as exc:  # a job must not hang in PREPARING because of an error of ours
            LOG.exception("job.launch_failed project=%s job=%s", job.project, job.id)
            return f"Trainshed itself failed to start this job: {exc}. The server's log has the details."
        return None

    def _launch_on_engine(self, launch: base.Launch) -> None:
        for left in reversed(range(TRIES)):
            try:
                self._engine.launch(launch)
                return
            except EngineDown as exc:
                if left == 0:
                    raise
                LOG.warning("engine.down job=%s tries_left=%d reason=%s", launch.job, left, exc)
                self._stopping.wait(1.0)

    def _fail(self, job: Job, reason: str) -> None:
        current = self._jobs.get(job.project, job.id)
        if current.state is not JobState.PREPARING or self._stopping.is_set():
            return  # cancelled meanwhile: the loop ends it; or we are stopping: the next server launches it
        self._engine.cancel(self._folder(current))  # a supervisor that was only too slow to start must not go on
        now = self._clock()
        events = (
            Event(text=reason, time_us=now, severity="ERROR"),
            Event(text="Job failed.", time_us=now, severity="ERROR"),
        )
        self._record(current.to(JobState.FAILED, now_us=now, error=reason), *events)

    def _record(self, job: Job, *events: Event) -> Job | None:
        """Write, unless someone else wrote since the job was read; then the next look sees what they wrote."""
        try:
            recorded = self._jobs.record(job, events)
        except Overtaken:
            LOG.info("job.overtaken project=%s job=%s", job.project, job.id)
            return None
        LOG.info("job.moved project=%s job=%s state=%s", job.project, job.id, job.state)
        self._news.set()  # there may be room for another one now
        return recorded
