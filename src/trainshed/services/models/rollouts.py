"""Rollouts: start one, look at it, stop it, or promote its version now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainshed.domain.models.model import Model
from trainshed.domain.models.rollout import Rollout, RolloutState, read_rollout_request
from trainshed.domain.models.version import Version
from trainshed.domain.times import now_us
from trainshed.errors import FailedPreconditionError, NotFoundError
from trainshed.services.ports import DeploymentControl, RolloutControl
from trainshed.store.models import ModelChange, ModelStore


class Rollouts:
    """The rollouts of all models. Thread-safe. Changes are stored and routed when a method returns."""

    def __init__(
        self,
        store: ModelStore,
        deployments: DeploymentControl,
        control: RolloutControl,
        *,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._store = store
        self._deployments = deployments
        self._control = control
        self._clock = clock

    def create(self, project: str, model_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Start a rollout. Raises `FailedPreconditionError` if one is running, or if a version is not READY."""
        version, plan = read_rollout_request(body)
        now = self._clock()
        model = self._change(
            project, model_id, lambda model, versions: model.with_rollout(version, plan, versions, now_us=now)
        )
        assert model.rollout is not None  # as stored by the line before
        return self._body(model, model.rollout)

    def list(self, project: str, model_id: str) -> dict[str, Any]:
        """Return the rollout that is running and the last ones that have ended, newest first."""
        model = self._store.get(project, model_id)
        return {"rollouts": [self._body(model, rollout) for rollout in _all(model)]}

    def get(self, project: str, model_id: str, rollout_id: str) -> dict[str, Any]:
        model = self._store.get(project, model_id)
        return self._body(model, _find(model, rollout_id))

    def stop(self, project: str, model_id: str, rollout_id: str) -> dict[str, Any]:
        """Send all requests to the version that was the default when the rollout started.

        Raises `FailedPreconditionError` if the rollout has ended.
        """
        now = self._clock()

        def stopped(model: Model, versions: Sequence[Version]) -> Model:
            _check_running(_find(model, rollout_id))
            return model.with_rollout_ended(RolloutState.STOPPED, "Stopped on request.", now_us=now)

        model = self._change(project, model_id, stopped)
        return self._body(model, _find(model, rollout_id))

    def promote(self, project: str, model_id: str, rollout_id: str) -> dict[str, Any]:
        """Make the version the default now, whatever stages are left.

        Raises `FailedPreconditionError` if the rollout has ended, or if the version is not READY.
        """
        now = self._clock()

        def promoted(model: Model, versions: Sequence[Version]) -> Model:
            rollout = _find(model, rollout_id)
            _check_running(rollout)
            version = next((each for each in versions if each.id == rollout.version), None)
            if version is None:
                raise NotFoundError(f"There is no version {rollout.version} of model {model_id} any more.")
            return model.with_rollout_promoted(version, "Promoted on request.", now_us=now)

        model = self._change(project, model_id, promoted)
        return self._body(model, _find(model, rollout_id))

    def _change(self, project: str, model_id: str, decide: Callable[[Model, Sequence[Version]], Model]) -> Model:
        model, _ = self._store.change(
            project, model_id, lambda model, versions: ModelChange(model=decide(model, versions))
        )
        self._deployments.publish(project, model_id)
        self._control.wake()
        return model

    def _body(self, model: Model, rollout: Rollout) -> dict[str, Any]:
        """The rollout, and what is measured in its stage if it is running."""
        if not rollout.running:
            return {**rollout.body(), "waitsFor": "", "measured": None}
        new, baseline, waits_for = self._control.measured(model)
        return {
            **rollout.body(),
            "waitsFor": waits_for,
            "measured": {"version": new.body(), "baseline": baseline.body()},
        }


def _all(model: Model) -> list[Rollout]:
    return [*([model.rollout] if model.rollout is not None else []), *model.past_rollouts]


def _find(model: Model, rollout_id: str) -> Rollout:
    for rollout in _all(model):
        if str(rollout.number) == rollout_id:
            return rollout
    raise NotFoundError(f"There is no rollout {rollout_id} of model {model.id} in project {model.project}.")


def _check_running(rollout: Rollout) -> None:
    if not rollout.running:
        raise FailedPreconditionError(
            f"Rollout {rollout.number} has ended: {rollout.state}. Its last event: {rollout.events[-1].message}"
        )
