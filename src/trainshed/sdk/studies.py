"""Studies: ask for trials, try their values, tell what came of them."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trainshed.sdk.display as display
from trainshed.client.context import ClientContext
from trainshed.client.submission import REGION
from trainshed.client.transport import ApiError, segment
from trainshed.errors import InvalidArgumentError
from trainshed.sdk.space import ParameterRange, algorithm_word, read_range

if TYPE_CHECKING:
    import pandas

_MAX_ROWS = 20  #: of a study that are drawn, the newest first
_SHOW_INTERVAL_S = 0.5  #: between two pictures of a study that runs
#: what a function returns of a trial: its value, those of all metrics by name, or None if it has none
TrialResult = float | Mapping[str, float] | None


class Studies:
    """The studies of a project: `connect().studies`."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context

    def create(
        self,
        name: str,
        space: Mapping[str, ParameterRange],
        *,
        maximize: str | Sequence[str] = (),
        minimize: str | Sequence[str] = (),
        algorithm: str = "bayesian",
        config: Mapping[str, Any] | None = None,
    ) -> Study:
        """Create a study. Raises `AlreadyExistsError` if the name is taken.

        A parameter in `space` is (low, high), of whole numbers if both are ints, (low, high, "log") for a scale, or a
        list of texts or numbers. `maximize` and `minimize` name metrics; without any, `objective` is maximized.
        `config` is a StudyConfig as in the API, for fields without an argument.
        """
        goals = [("MAXIMIZE", name) for name in _names(maximize)] + [("MINIMIZE", name) for name in _names(minimize)]
        body = {
            "metrics": [{"metric": metric, "goal": goal} for goal, metric in goals or [("MAXIMIZE", "objective")]],
            "parameters": [_parameter(parameter, values) for parameter, values in space.items()],
            "algorithm": algorithm_word(algorithm),
            **(config or {}),
        }
        path = self._context.ml(f"locations/{REGION}/studies?studyId={segment(name)}")
        self._context.client.call("POST", path, body={"studyConfig": body})
        return Study(self._context, name)

    def get(self, name: str) -> Study:
        """Return an existing study. Raises `NotFoundError` if there is none of this name."""
        study = Study(self._context, name)
        study.describe()
        return study

    def list(self) -> list[Study]:
        """List all studies, the newest first."""
        body = self._context.client.call("GET", self._context.ml(f"locations/{REGION}/studies"))
        return [Study(self._context, item["name"].rpartition("/")[2]) for item in body.get("studies", [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTrial:
    """A trial of a study, as it was when it was read."""

    number: int
    values: Mapping[str, Any]  #: of the parameters, by name
    state: str
    metrics: Mapping[str, float]  #: its final values; empty before it is completed
    infeasible: bool = False

    def __getitem__(self, parameter: str) -> Any:
        return self.values[parameter]


class Study:
    """One study."""

    def __init__(self, context: ClientContext, name: str) -> None:
        self._context = context
        self.name = name
        self._client_id = uuid.uuid4().hex
        self._metrics: list[dict[str, str]] = []

    def describe(self) -> dict[str, Any]:
        """Return the study as in the API."""
        return dict(self._context.client.call("GET", self._path()))

    def ask(self, client: str | None = None) -> AskedTrial:
        """Return a trial to try. Raises `ApiUnavailableError` if the study has no more.

        `client` names who tries it: a name that asks again before it tells gets the same trial.
        """
        body = {"clientId": client or self._client_id, "suggestionCount": 1}
        operation = self._context.client.call("POST", self._path("/trials:suggest"), body=body)
        return _trial(operation["response"]["trials"][0])

    def run(self, objective: Callable[[AskedTrial], TrialResult], trials: int, *, client: str | None = None) -> None:
        """Ask, call `objective` with the trial and tell what it returns, this many times, and show the study meanwhile.

        It is a live view in a notebook, otherwise a line for each trial. Values that are not finite, and None, say that
        a trial is infeasible. An error of `objective` ends the run; its trial is the first one of the next run. The run
        ends before if the study has no more trials.
        """
        live = display.Live()
        shown_s = -math.inf
        for number in range(1, trials + 1):
            trial = self._next(client)
            if trial is None:
                break
            told = self.tell(trial, _finite(objective(trial)))
            if number == trials or not display.in_notebook() or time.monotonic() - shown_s > _SHOW_INTERVAL_S:
                shown_s = time.monotonic()
                self._show(live, told, f"{number} of {trials} trials")

    def _next(self, client: str | None) -> AskedTrial | None:
        """Ask. Returns None if the study is complete."""
        try:
            return self.ask(client)
        except ApiError:
            if self.describe()["state"] != "COMPLETED":
                raise
            return None

    def _show(self, live: display.Live, told: AskedTrial, count: str) -> None:
        values = {name: f"{value:.6g}" for name, value in told.metrics.items()}
        result = ", ".join(f"{name} {text}" for name, text in values.items()) or "infeasible"
        best = self.best
        line = f"{count}: trial {told.number} {result}" + (f", best trial {best.number}" if best else "")
        live.show(display.message(line) + (self._repr_html_() if display.in_notebook() else ""), line)

    def tell(self, trial: AskedTrial | int, value: TrialResult) -> AskedTrial:
        """Complete a trial with its value, or with the values of all metrics. None says that it is infeasible."""
        number = trial if isinstance(trial, int) else trial.number
        body: dict[str, Any] = {"trialInfeasible": True}
        if value is not None:
            values = value if isinstance(value, Mapping) else {self._first_metric(): value}
            metrics = [{"metric": metric, "value": float(each)} for metric, each in values.items()]
            body = {"finalMeasurement": {"metrics": metrics}}
        return _trial(self._context.client.call("POST", self._path(f"/trials/{number}:complete"), body=body))

    def try_next(self, values: Mapping[str, Any]) -> AskedTrial:
        """Make a point of your own the next trial."""
        parameters = [{"parameter": name, **_value(value)} for name, value in values.items()]
        return _trial(self._context.client.call("POST", self._path("/trials"), body={"parameters": parameters}))

    @property
    def trials(self) -> list[AskedTrial]:
        """All trials in the order of their numbers."""
        body = self._context.client.call("GET", self._path("/trials"))
        return [_trial(item) for item in body.get("trials", [])]

    @property
    def best(self) -> AskedTrial | None:
        """The best completed trial, the first one of several that are as good. None if there is none."""
        body = self._context.client.call("POST", self._path("/trials:listOptimalTrials"), body={})
        optimal = body.get("trials", [])
        return _trial(optimal[0]) if optimal else None

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each trial: number, state, the values of parameters, the final metrics."""
        return [{"trial": each.number, "state": each.state, **each.values, **each.metrics} for each in self.trials]

    def frame(self) -> pandas.DataFrame:
        """Return the rows as a pandas frame. Raises `CannotProceedError` without pandas."""
        return display.frame(self.rows())

    def delete(self) -> None:
        """Delete the study with all of its trials."""
        self._context.client.call("DELETE", self._path())

    def _first_metric(self) -> str:
        if not self._metrics:
            self._metrics = self.describe()["studyConfig"]["metrics"]
        if len(self._metrics) > 1:
            raise InvalidArgumentError(
                "The study has several metrics. Tell a mapping, such as {'loss': 0.1, 'size': 12}."
            )
        return self._metrics[0]["metric"]

    def _path(self, rest: str = "") -> str:
        return self._context.ml(f"locations/{REGION}/studies/{segment(self.name)}{rest}")

    def __repr__(self) -> str:
        return f"<Study {self.name}>"

    def _repr_html_(self) -> str:
        rows = self.rows()
        columns = list(dict.fromkeys(column for row in rows for column in row))
        more = display.message(f"and {len(rows) - _MAX_ROWS:,} before") if len(rows) > _MAX_ROWS else ""
        return display.table(rows[: -_MAX_ROWS - 1 : -1], columns) + more


def _finite(result: TrialResult) -> TrialResult:
    """What a function returned, or None if a value is NaN or infinite."""
    values = result.values() if isinstance(result, Mapping) else [] if result is None else [result]
    return result if all(math.isfinite(value) for value in values) else None


def _names(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _parameter(name: str, values: ParameterRange) -> dict[str, Any]:
    read = read_range(name, values)
    body: dict[str, Any] = {"parameter": name, "type": read.kind}
    if read.bounds is not None:
        spec = {"minValue": read.bounds[0], "maxValue": read.bounds[1]}
        body["integerValueSpec" if read.kind == "INTEGER" else "doubleValueSpec"] = spec
        return body | ({"scaleType": read.scale} if read.scale else {})
    values_spec = "categoricalValueSpec" if read.kind == "CATEGORICAL" else "discreteValueSpec"
    return body | {values_spec: {"values": list(read.values)}}


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    return {"intValue": value} if isinstance(value, int) else {"floatValue": value}


def _trial(body: Mapping[str, Any]) -> AskedTrial:
    final = body.get("finalMeasurement", {}).get("metrics", [])
    return AskedTrial(
        number=int(body["name"].rpartition("/")[2]),
        values={each["parameter"]: _read(each) for each in body.get("parameters", [])},
        state=body["state"],
        metrics={each["metric"]: each["value"] for each in final},
        infeasible=bool(body.get("trialInfeasible")),
    )


def _read(parameter: Mapping[str, Any]) -> Any:
    if "intValue" in parameter:
        return int(parameter["intValue"])
    return parameter.get("floatValue", parameter.get("stringValue"))
