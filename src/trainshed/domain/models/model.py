"""A model: the name that clients call, and the rules that select which version serves a request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainshed.domain import json_fields as f
from trainshed.domain import names
from trainshed.domain.models.rollout import MAX_KEPT, Rollout, RolloutPlan, RolloutState
from trainshed.domain.models.version import Version, VersionState, version_body
from trainshed.domain.patches import etag
from trainshed.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

DEFAULT_REGION = "us-central1"
MAX_BODY_BYTES = 64 * 1024  #: of a description and the like; an operation repeats it

_REGION = re.compile(r"[a-z][a-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model as the control plane knows it. Immutable: every rule returns a new one."""

    project: str
    id: str
    body: Mapping[str, Any]  #: the parts of the API's Model that the user wrote, without name and labels
    labels: Mapping[str, str] = field(default_factory=dict)
    default_version: str = ""  #: empty: no version has been READY yet
    previous_version: str = ""  #: the default before this one; the target of `rolled_back`
    split: Mapping[str, int] = field(default_factory=dict)  #: percentages by version; empty: the default gets all
    rollout: Rollout | None = None  #: the one that is running
    past_rollouts: tuple[Rollout, ...] = ()  #: those that have ended, newest first
    created_us: int
    generation: int = 1  #: incremented by each write; the etag encodes it
    order_us: int = field(default=0, compare=False)  #: position in the order of creation; assigned by the store

    @property
    def name(self) -> str:
        return f"projects/{self.project}/models/{self.id}"

    @property
    def access_log(self) -> bool:
        return bool(self.body.get("onlinePredictionLogging"))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the owner of the model."""
        if not self.body.get("onlinePredictionConsoleLogging"):
            return ()
        return (
            "What the code of a version prints is kept in any case; `trainshed versions describe VERSION --log` shows "
            "the end of it. online_prediction_console_logging is kept, and changes nothing.",
        )

    def with_default(self, version: Version) -> Model:
        """Make `version` the default and end a split.

        Raises `FailedPreconditionError` unless it is READY, and if a rollout is running.
        """
        self._check_no_rollout()
        _check_serving(version)
        previous = self.previous_version if self.default_version in ("", version.id) else self.default_version
        return replace(self, default_version=version.id, previous_version=previous, split={})

    def with_split(self, weights: Mapping[str, int], versions: Iterable[Version]) -> Model:
        """Split requests that name no version by these percentages. Without weights, the split ends.

        Raises `NotFoundError` if a version does not exist, and `FailedPreconditionError` if one is not READY, or if a
        rollout is running.
        """
        self._check_no_rollout()
        by_id = {version.id: version for version in versions}
        for name in weights:
            if name not in by_id:
                raise version_not_found(self.project, self.id, name)
            _check_serving(by_id[name])
        return replace(self, split=dict(weights))

    def rolled_back(self, versions: Iterable[Version], *, now_us: int) -> Model:
        """Stop a rollout, or end a split. Without either, restore the previous default.

        Raises `FailedPreconditionError` if there is none.
        """
        if self.rollout is not None:
            return self.with_rollout_ended(RolloutState.STOPPED, "Stopped by a rollback of the model.", now_us=now_us)
        if self.split:
            return replace(self, split={})
        previous = [version for version in versions if version.id == self.previous_version]
        if not previous:
            raise FailedPreconditionError(
                f"Model {self.id} has no version to go back to: its default was never another one that is still "
                f"there. Choose a version with `trainshed versions set-default VERSION --model {self.id}`."
            )
        return self.with_default(previous[0])

    def with_rollout(self, version_id: str, plan: RolloutPlan, versions: Iterable[Version], *, now_us: int) -> Model:
        """Start a rollout of a version. Raises `NotFoundError` if it does not exist.

        Raises `FailedPreconditionError` if it or the default is not READY, or if there is a rollout or a split already.
        """
        self._check_no_rollout()
        by_id = {version.id: version for version in versions}
        for name in (version_id, self.default_version):
            if name and name not in by_id:
                raise version_not_found(self.project, self.id, name)
        _check_serving(by_id[version_id])
        if not self.default_version:
            raise FailedPreconditionError(f"Model {self.id} has no default version to compare with.")
        if version_id == self.default_version:
            raise FailedPreconditionError(f"Version {version_id} is the default version of model {self.id} already.")
        _check_serving(by_id[self.default_version])
        if self.split:
            raise FailedPreconditionError(
                f"The requests for model {self.id} are split. End the split first, with `trainshed models split "
                f"{self.id} --end`."
            )
        rollout = Rollout(
            number=max((past.number for past in self.past_rollouts), default=0) + 1,
            version=version_id,
            baseline=self.default_version,
            plan=plan,
            stage_us=now_us,
            created_us=now_us,
        )
        return self.with_rollout_at(rollout.told(f"Started with {rollout.current}.", now_us=now_us))

    def with_rollout_at(self, rollout: Rollout) -> Model:
        """This model with its rollout as it is now, and the split of its stage."""
        return replace(self, rollout=rollout, split=rollout.split)

    def with_rollout_ended(self, state: RolloutState, reason: str, *, now_us: int) -> Model:
        """End the rollout that is running. Its baseline gets all requests."""
        assert self.rollout is not None
        ended = self.rollout.ended(state, reason, now_us=now_us)
        return replace(self, rollout=None, past_rollouts=(ended, *self.past_rollouts)[:MAX_KEPT], split={})

    def with_rollout_promoted(self, version: Version, reason: str, *, now_us: int) -> Model:
        """End the rollout that is running: its version becomes the default."""
        return self.with_rollout_ended(RolloutState.PROMOTED, reason, now_us=now_us).with_default(version)

    def _check_no_rollout(self) -> None:
        if self.rollout is not None:
            raise FailedPreconditionError(
                f"Version {self.rollout.version} of model {self.id} is being rolled out. Wait for the end, or stop it "
                f"with `trainshed versions rollout {self.rollout.version} --model {self.id} --stop`."
            )

    def with_ready_version(self, version: Version) -> Model:
        """Make the first READY version the default. Later versions change nothing."""
        if self.default_version or not version.serving:
            return self
        return replace(self, default_version=version.id)

    def check_can_lose(self, version: Version, versions: Iterable[Version]) -> None:
        """Raises `FailedPreconditionError` if deleting `version` would leave requests without a version."""
        if version.state is VersionState.CREATING:
            raise FailedPreconditionError(
                f"Version {version.id} is being created. Wait for it, or cancel its operation with: "
                f"trainshed operations cancel {version.operation}"
            )
        if version.state is VersionState.UPDATING:
            raise FailedPreconditionError(f"Version {version.id} is being updated. Try again when that is done.")
        if version.state is VersionState.DELETING:
            raise FailedPreconditionError(f"Version {version.id} is being deleted already.")
        if self.rollout is not None and version.id in (self.rollout.version, self.rollout.baseline):
            self._check_no_rollout()
        if version.id in self.split:
            raise FailedPreconditionError(
                f"Version {version.id} gets {self.split[version.id]} % of the requests to model {self.id}. End the "
                f"split first, with `trainshed models split {self.id} --end`."
            )
        others = [other for other in versions if other.id != version.id and other.state is not VersionState.DELETING]
        if version.id == self.default_version and others:
            raise FailedPreconditionError(
                f"Version {version.id} is the default version of model {self.id}, which has other versions. Make "
                f"another one the default first, with `trainshed versions set-default VERSION --model {self.id}`."
            )

    def without_version(self, version_id: str, remaining: Sequence[Version]) -> Model:
        """This model after a version was deleted.

        The oldest READY version of those `remaining` replaces a deleted default.
        """
        model = self
        if self.previous_version == version_id:
            model = replace(model, previous_version="")
        if self.default_version == version_id:
            ready = sorted((v for v in remaining if v.serving), key=lambda v: (v.order_us, v.created_us, v.id))
            model = replace(model, default_version=ready[0].id if ready else "")
        return model


def _check_serving(version: Version) -> None:
    if not version.serving:
        raise FailedPreconditionError(
            f"Version {version.id} is {version.state}, and only a version that is READY can answer requests."
        )


def model_not_found(project: str, model: str) -> NotFoundError:
    return NotFoundError(f"There is no model {model} in project {project}.")


def version_not_found(project: str, model: str, version: str) -> NotFoundError:
    return NotFoundError(f"There is no version {version} of model {model} in project {project}.")


def model_body(model: Model, default: Version | None, *, last_use_us: int | None = None) -> dict[str, Any]:
    """The API's Model. `last_use_us` is that of the default version."""
    body: dict[str, Any] = {"name": model.name, **model.body, "etag": etag(model.generation)}
    if default is not None:
        body["defaultVersion"] = version_body(default, default=True, last_use_us=last_use_us)
    if model.labels:
        body["labels"] = model.labels
    return body


MODEL = f.message(
    {
        "defaultVersion": f.anything,
        "description": f.string,
        "etag": f.string,
        "labels": f.anything,
        "name": f.string,
        "onlinePredictionConsoleLogging": f.boolean,
        "onlinePredictionLogging": f.boolean,
        "regions": f.repeated(f.string),
    }
)
_BODY_FIELDS = ("description", "regions", "onlinePredictionLogging", "onlinePredictionConsoleLogging")


def read_model(body: Mapping[str, Any], project: str, *, now_us: int) -> Model:
    """Read the model of a create request. Raises `InvalidArgumentError`, which names the field, if it is invalid."""
    fields = MODEL(body, "model")
    if not fields.get("name"):
        raise InvalidArgumentError("The model has no name. Give it one, such as mnist.", field="model.name")
    name = names.model_name(fields["name"])
    model_fields = {key: fields[key] for key in _BODY_FIELDS if key in fields} | {
        "regions": _regions(fields.get("regions", []))
    }
    check_size(model_fields, field="model.description")
    labels = names.labels(fields.get("labels", {}), field="model.labels")
    return Model(project=project, id=name, body=model_fields, labels=labels, created_us=now_us)


def _regions(regions: list[str]) -> list[str]:
    if len(regions) > 1:
        raise InvalidArgumentError(
            f"A model is deployed to one region; {len(regions)} are given. There is one machine here: name one region, "
            f"such as {DEFAULT_REGION}, or none.",
            field="model.regions",
        )
    for region in regions:
        if not _REGION.fullmatch(region):
            raise InvalidArgumentError(
                f"{region!r} is not the name of a region, such as {DEFAULT_REGION}.", field="model.regions"
            )
    return regions or [DEFAULT_REGION]


def check_size(body: Mapping[str, Any], *, field: str) -> None:
    size = sum(len(str(value).encode(errors="surrogatepass")) for value in body.values())
    if size > MAX_BODY_BYTES:
        raise InvalidArgumentError(f"This takes {size:,} bytes; {MAX_BODY_BYTES:,} are allowed.", field=field)


def read_model_patch(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read the Model of a patch request. Unknown names are rejected; fields outside the mask are not checked."""
    fields: Mapping[str, Any] = MODEL(body, "model")
    return fields


_SPLIT = f.message({"weights": f.anything})


def read_split(body: Mapping[str, Any]) -> dict[str, int]:
    """The percentages by version of a split request. Empty ends the split.

    Raises `InvalidArgumentError` unless they sum to 100.
    """
    raw_weights = _SPLIT(body, "").get("weights", {})
    if not isinstance(raw_weights, dict):
        raise InvalidArgumentError("The weights are a map from version names to percents.", field="weights")
    weights = {names.version_name(name): f.int32(value, f"weights.{name}") for name, value in raw_weights.items()}
    for name, weight in weights.items():
        if weight <= 0:
            raise InvalidArgumentError(
                f"Version {name} has the weight {weight}; a weight is a whole percentage above 0. Leave out versions "
                f"that get nothing.",
                field="weights",
            )
    if weights and sum(weights.values()) != 100:
        raise InvalidArgumentError(
            f"The weights add up to {sum(weights.values())}; they must make 100.", field="weights"
        )
    return weights
