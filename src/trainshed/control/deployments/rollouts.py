"""The rollout controller: measures what a rollout's versions answer, and writes and routes its next stage."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainshed.background import BackgroundLoop, PassFailures
from trainshed.domain.models.model import Model
from trainshed.domain.models.rollout import Rollout, RolloutState
from trainshed.domain.models.rollout_condition import StageMeasurement
from trainshed.domain.models.rollout_rules import Action, Advance, Evidence, Promote, RollBack, StayInStage, next_action
from trainshed.domain.models.version import Version
from trainshed.domain.times import now_us
from trainshed.errors import CannotProceedError, NotFoundError
from trainshed.gateway.metrics import Totals
from trainshed.gateway.shadow import ShadowTotals
from trainshed.node.crashpoints import crashpoint
from trainshed.store.models import ModelChange, ModelStore

LOG = logging.getLogger("trainshed.control.deployments.rollouts")

ACTIVE_INTERVAL_S = 0.25  #: between passes while a rollout is running
IDLE_INTERVAL_S = 5.0

Key = tuple[str, str]  #: project, model


class RequestCounts(Protocol):
    """Counts of requests since the server started, as the gateways have them. Thread-safe."""

    def requests(self, project: str, model: str, version: str) -> Totals:
        """Return a copy of the counts of a version's own requests."""

    def shadow_requests(self, project: str, model: str, version: str) -> ShadowTotals:
        """Return a copy of the counts of its shadow requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """The counts at the begin of a stage, from which its own are computed."""

    number: int  #: of the rollout
    stage: int
    new: Totals
    baseline: Totals
    shadow: ShadowTotals


class RolloutController:
    """Carries out rollouts. One thread owns the loop. Implements `RolloutControl`.

    A stage's counts begin anew with a server. Which stage it is, and since when, is in the model's row.
    """

    def __init__(
        self,
        models: ModelStore,
        counts: RequestCounts,
        publish: Callable[[str, str], None],
        *,
        check: Callable[[], None] = lambda: None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """`publish` routes a model from its row. `check` raises `CannotProceedError` if this server must not act."""
        self._models = models
        self._counts = counts
        self._publish = publish
        self._check = check
        self._clock = clock
        self._lock = threading.Lock()  #: guards `_stages` and `_waits`
        self._stages: dict[Key, _Stage] = {}
        self._waits: dict[Key, str] = {}
        self._unpublished: set[Key] = set()  #: models whose rows may have changed since they were routed; loop only
        self._loop = BackgroundLoop("rollouts", self._checked_step)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()

    def join(self) -> None:
        self._loop.join()

    def wake(self) -> None:
        """See `RolloutControl`."""
        self._loop.wake()

    def measured(self, model: Model) -> tuple[StageMeasurement, StageMeasurement, str]:
        """See `RolloutControl`."""
        assert model.rollout is not None
        evidence = self._evidence(model, model.rollout, ())
        with self._lock:
            return evidence.new, evidence.baseline, self._waits.get((model.project, model.id), "")

    def _checked_step(self) -> float:
        try:
            self._check()
        except CannotProceedError as exc:
            LOG.critical("rollouts.refused reason=%s", exc)
            return IDLE_INTERVAL_S
        return self.step()

    def step(self) -> float:
        """Run one pass over the rollouts that are running. Returns the seconds until the next one is due."""
        models = self._models.rolling_out()
        keys = {(model.project, model.id) for model in models}
        with self._lock:
            self._stages = {key: stage for key, stage in self._stages.items() if key in keys}
            self._waits = {key: reason for key, reason in self._waits.items() if key in keys}
        for key in tuple(self._unpublished):  # a pass that failed has left them
            self._publish_now(key)
        failures = PassFailures(LOG, "rollout.step_failed")
        for model in models:
            try:
                self._reconcile(model)
            except Exception as exc:  # noqa: BLE001 - logged; it must not block the others
                failures.add(model.name, exc)
        if models and len(failures.names) == len(models):
            failures.raise_outage()
        return ACTIVE_INTERVAL_S if models or self._unpublished else IDLE_INTERVAL_S

    def _reconcile(self, model: Model) -> None:
        rollout = model.rollout
        assert rollout is not None  # the query selects those that have one
        evidence = self._evidence(model, rollout, self._models.versions(model.project, model.id))
        action = next_action(rollout, evidence, now_us=self._clock())
        if isinstance(action, StayInStage):
            with self._lock:
                self._waits[model.project, model.id] = action.reason
            return
        self._unpublished.add((model.project, model.id))
        try:
            self._models.change(
                model.project, model.id, lambda current, versions: self._changed(current, versions, rollout, action)
            )
        except NotFoundError:
            LOG.info("rollout.model_gone model=%s", model.name)
        crashpoint("rollout.stage.written")
        self._publish_now((model.project, model.id))
        LOG.info("rollout.%s model=%s reason=%s", type(action).__name__.lower(), model.name, action.reason)

    def _publish_now(self, key: Key) -> None:
        self._publish(*key)
        self._unpublished.discard(key)

    def _changed(self, model: Model, versions: Sequence[Version], rollout: Rollout, action: Action) -> ModelChange:
        """What an action changes; nothing if somebody else has changed the rollout since it was decided."""
        if model.rollout != rollout:
            return ModelChange()
        now = self._clock()
        match action:
            case Advance():
                advanced = rollout.advanced(action.reason, action.reference, now_us=now)
                return ModelChange(model=model.with_rollout_at(advanced))
            case RollBack():
                return ModelChange(model=model.with_rollout_ended(RolloutState.ROLLED_BACK, action.reason, now_us=now))
            case Promote():
                new = next(version for version in versions if version.id == rollout.version)
                return ModelChange(model=model.with_rollout_promoted(new, action.reason, now_us=now))
        return ModelChange()

    def _evidence(self, model: Model, rollout: Rollout, versions: Sequence[Version]) -> Evidence:
        """What the stage's requests have shown. Its first call for a stage begins the count."""
        begun = self._begun(model, rollout)
        new = self._counts.requests(model.project, model.id, rollout.version).since(begun.new)
        baseline = self._counts.requests(model.project, model.id, rollout.baseline).since(begun.baseline)
        measured = _measurement(new)
        if rollout.current.shadow:
            shadow = self._counts.shadow_requests(model.project, model.id, rollout.version).since(begun.shadow)
            measured = _measurement(shadow.requests, compared=shadow.compared, changed=shadow.changed)
        serving = {version.id for version in versions if version.serving}
        return Evidence(
            new=measured,
            baseline=_measurement(baseline),
            new_serves=rollout.version in serving,
            baseline_serves=rollout.baseline in serving and model.default_version == rollout.baseline,
        )

    def _begun(self, model: Model, rollout: Rollout) -> _Stage:
        key = (model.project, model.id)
        with self._lock:
            begun = self._stages.get(key)
            if begun is None or (begun.number, begun.stage) < (rollout.number, rollout.stage):
                begun = self._stages[key] = _Stage(
                    number=rollout.number,
                    stage=rollout.stage,
                    new=self._counts.requests(*key, rollout.version),
                    baseline=self._counts.requests(*key, rollout.baseline),
                    shadow=self._counts.shadow_requests(*key, rollout.version),
                )
        return begun


def _measurement(totals: Totals, *, compared: int = 0, changed: int = 0) -> StageMeasurement:
    return StageMeasurement(
        requests=totals.count,
        errors=totals.errors,
        compared=compared,
        changed=changed,
        p50_ms=totals.percentile_ms(0.5),
        p95_ms=totals.percentile_ms(0.95),
        p99_ms=totals.percentile_ms(0.99),
    )
