"""A model: the name that clients call, and the rules on which of its versions answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainshed.domain import json_fields as f
from trainshed.domain import names
from trainshed.domain.etags import etag
from trainshed.domain.models.version import Version, VersionState, version_body
from trainshed.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

DEFAULT_REGION = "us-central1"
MAX_BODY_BYTES = 64 * 1024  #: of a description and the like; an operation repeats it

_REGION = re.compile(r"[a-z][a-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model as the control plane knows it. A value: every rule returns a new one."""

    project: str
    id: str
    body: Mapping[str, Any]  #: the parts of the API's Model that the user wrote, but for name and labels
    labels: Mapping[str, str] = field(default_factory=dict)
    default_version: str = ""  #: empty: none of its versions has ever been READY
    previous_version: str = ""  #: what the default was before; where `rolled_back` leads
    split: Mapping[str, int] = field(default_factory=dict)  #: percents by version; empty: the default gets all
    created_us: int
    generation: int = 1  #: grows with each write; the etag is made of it

    @property
    def name(self) -> str:
        return f"projects/{self.project}/models/{self.id}"

    @property
    def access_log(self) -> bool:
        return bool(self.body.get("onlinePredictionLogging"))

    @property
    def notes(self) -> tuple[str, ...]:
        """What its owner should know of it."""
        if not self.body.get("onlinePredictionConsoleLogging"):
            return ()
        return (
            "What the code of a version prints is kept in any case; `trainshed versions describe VERSION --log` shows "
            "the end of it. online_prediction_console_logging is kept, and changes nothing.",
        )

    def with_default(self, version: Version) -> Model:
        """`version` answers from now on, alone: a split ends. `FailedPreconditionError` unless it is READY."""
        _check_serving(version)
        previous = self.previous_version if self.default_version in ("", version.id) else self.default_version
        return replace(self, default_version=version.id, previous_version=previous, split={})

    def with_split(self, weights: Mapping[str, int], versions: Iterable[Version]) -> Model:
        """Requests that name no version are spread by these percents; no weights end a split.

        `NotFoundError` or `FailedPreconditionError` unless each version is there and READY.
        """
        known = {version.id: version for version in versions}
        for name in weights:
            if name not in known:
                raise version_not_found(self.project, self.id, name)
            _check_serving(known[name])
        return replace(self, split=dict(weights))

    def rolled_back(self, versions: Iterable[Version]) -> Model:
        """A split ends, and the default gets all; without one, the default of before is the default again.

        `FailedPreconditionError` if there is nothing to go back to.
        """
        if self.split:
            return replace(self, split={})
        before = [version for version in versions if version.id == self.previous_version]
        if not before:
            raise FailedPreconditionError(
                f"Model {self.id} has no version to go back to: its default was never another one that is still "
                f"there. Choose a version with: trainshed versions set-default VERSION --model {self.id}"
            )
        return self.with_default(before[0])

    def with_ready_version(self, version: Version) -> Model:
        """The first version that is READY becomes the default; a later one changes nothing."""
        if self.default_version or not version.serving:
            return self
        return replace(self, default_version=version.id)

    def check_can_lose(self, version: Version, versions: Iterable[Version]) -> None:
        """`FailedPreconditionError` if deleting `version` would leave requests without an answer."""
        if version.state is VersionState.CREATING:
            raise FailedPreconditionError(
                f"Version {version.id} is being created. Wait for it, or cancel its operation with: "
                f"trainshed operations cancel {version.operation}"
            )
        if version.state is VersionState.UPDATING:
            raise FailedPreconditionError(f"Version {version.id} is being updated. Try again when that is done.")
        if version.state is VersionState.DELETING:
            raise FailedPreconditionError(f"Version {version.id} is being deleted already.")
        if version.id in self.split:
            raise FailedPreconditionError(
                f"Version {version.id} gets {self.split[version.id]} % of the requests to model {self.id}. End the "
                f"split first, with: trainshed models split {self.id} --end"
            )
        others = [other for other in versions if other.id != version.id and other.state is not VersionState.DELETING]
        if version.id == self.default_version and others:
            raise FailedPreconditionError(
                f"Version {version.id} is the default version of model {self.id}, which has other versions. Make "
                f"another one the default first, with: trainshed versions set-default VERSION --model {self.id}"
            )

    def without_version(self, version_id: str, left: Sequence[Version]) -> Model:
        """This model when a version is gone. If it was the default, the oldest of those `left` that is READY is."""
        model = self
        if self.previous_version == version_id:
            model = replace(model, previous_version="")
        if self.default_version == version_id:
            ready = sorted((v for v in left if v.serving), key=lambda v: (v.created_us, v.id))
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
    """A model in the API's own form. `last_use_us` is that of its default version."""
    body: dict[str, Any] = {"name": model.name, **model.body, "etag": etag(model.generation)}
    if default is not None:
        body["defaultVersion"] = version_body(default, default=True, last_use_us=last_use_us)
    if model.labels:
        body["labels"] = model.labels
    return body


_MODEL = f.message(
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
_KEPT = ("description", "regions", "onlinePredictionLogging", "onlinePredictionConsoleLogging")


def read_model(body: Mapping[str, Any], project: str, *, now_us: int) -> Model:
    """The model of a create request. `InvalidArgumentError`, naming the field, if it makes no sense."""
    given = _MODEL(body, "model")
    if not given.get("name"):
        raise InvalidArgumentError("The model has no name. Give it one, such as mnist.", field="model.name")
    name = names.model_name(given["name"])
    kept = {key: given[key] for key in _KEPT if key in given} | {"regions": _regions(given.get("regions", []))}
    check_size(kept, field="model.description")
    labels = names.labels(given.get("labels", {}), field="model.labels")
    return Model(project=project, id=name, body=kept, labels=labels, created_us=now_us)


def _regions(given: list[str]) -> list[str]:
    if len(given) > 1:
        raise InvalidArgumentError(
            f"A model is deployed to one region; {len(given)} are given. There is one machine here: name one region, "
            f"such as {DEFAULT_REGION}, or none.",
            field="model.regions",
        )
    for region in given:
        if not _REGION.fullmatch(region):
            raise InvalidArgumentError(
                f"{region!r} is not the name of a region, such as {DEFAULT_REGION}.", field="model.regions"
            )
    return given or [DEFAULT_REGION]


def check_size(body: Mapping[str, Any], *, field: str) -> None:
    size = sum(len(str(value).encode(errors="surrogatepass")) for value in body.values())
    if size > MAX_BODY_BYTES:
        raise InvalidArgumentError(f"This takes {size:,} bytes; {MAX_BODY_BYTES:,} are allowed.", field=field)


def read_model_patch(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Model of a patch request: known names only. What its mask doesn't name is not looked into."""
    given: Mapping[str, Any] = _MODEL(body, "model")
    return given


_SPLIT = f.message({"weights": f.anything})


def read_split(body: Mapping[str, Any]) -> dict[str, int]:
    """The percents by version of a split request, or none to end it.

    `InvalidArgumentError` unless they add up to 100.
    """
    given = _SPLIT(body, "").get("weights", {})
    if not isinstance(given, dict):
        raise InvalidArgumentError("The weights are a map from version names to percents.", field="weights")
    weights = {names.version_name(name): f.int32(value, f"weights.{name}") for name, value in given.items()}
    for name, weight in weights.items():
        if weight <= 0:
            raise InvalidArgumentError(
                f"Version {name} has the weight {weight}; a weight is a whole percentage above 0. Leave out versions "
                f"that shall get nothing.",
                field="weights",
            )
    if weights and sum(weights.values()) != 100:
        raise InvalidArgumentError(
            f"The weights add up to {sum(weights.values())}; they must make 100.", field="weights"
        )
    return weights
