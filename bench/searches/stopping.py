"""Part `stopping`: early stopping on real learning curves, in random searches whose trials are drawn from them."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from report import Row
from trainshed.domain.tuning.early_stopping import Curve, CurvePoint, should_stop
from trainshed.runtimes.catalogue import DEFAULT_RUNTIME
from trainshed.testing.cache import CACHE, runtime_python

PROGRAM = Path(__file__).resolve().parents[1] / "peers" / "learning_curves.py"
CURVES, EPOCHS = 160, 30
TRIALS = (20, 50)
MIN_TRIALS_MEDIAN = 5  #: that have ended before Optuna's pruner stops one, by its defaults

Stops = Callable[[Curve, Sequence[Curve], Sequence[Curve]], bool]  #: of a trial, given the completed ones and all


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one search with early stopping."""

    epochs: float  #: the share of all epochs that was run
    lost: bool  #: whether the trial that would have been best was stopped


def learning_curves() -> list[list[float]]:
    """The recorded curves. The first run records them, in a minute of CPU."""
    path = CACHE / "bench" / f"learning-curves-{CURVES}-{EPOCHS}.json"
    if not path.exists():
        command = [str(runtime_python(DEFAULT_RUNTIME)), str(PROGRAM), "--curves", str(CURVES), "--epochs", str(EPOCHS)]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(output)
    curves: list[list[float]] = json.loads(path.read_text())
    return curves


def ours(curve: Curve, completed: Sequence[Curve], _: Sequence[Curve]) -> bool:
    return should_stop(curve, completed) is not None


def median_at_step(curve: Curve, _: Sequence[Curve], others: Sequence[Curve]) -> bool:
    """The rule of Optuna's MedianPruner with its defaults: the best value so far against the median at this step."""
    if len(others) < MIN_TRIALS_MEDIAN:
        return False
    values = [other[len(curve) - 1].value for other in others if len(other) >= len(curve)]
    return bool(values) and max(point.value for point in curve) < statistics.median(values)


def search(curves: Sequence[Curve], stops: Stops) -> Outcome:
    """Run trials one after the other, and each one epoch by epoch."""
    completed: list[Curve] = []
    ended: list[Curve] = []
    epochs = 0
    best = max(range(len(curves)), key=lambda number: curves[number][-1].value)
    lost = False
    for number, curve in enumerate(curves):
        shown = curve
        for length in range(1, len(curve)):
            if stops(curve[:length], completed, ended):
                shown = curve[:length]
                lost |= number == best
                break
        else:
            completed.append(curve)
        ended.append(shown)
        epochs += len(shown)
    return Outcome(epochs / sum(map(len, curves)), lost)


def _searches(trials: int, searches: int, rule: Stops) -> list[Outcome]:
    """Searches with one rule. The same ones for each rule."""
    recorded = [[CurvePoint(step, value) for step, value in enumerate(curve, 1)] for curve in learning_curves()]
    chance = random.Random(trials)
    return [search(chance.sample(recorded, trials), rule) for _ in range(searches)]


def early_stopping(*, searches: int, processes: int) -> list[Row]:
    learning_curves()
    rules = (ours, median_at_step)
    with ProcessPoolExecutor(processes) as pool:
        pending = {
            (trials, rule): pool.submit(_searches, trials, searches, rule) for trials in TRIALS for rule in rules
        }
        outcomes = {key: future.result() for key, future in pending.items()}
    rows = []
    for trials in TRIALS:
        rows.append(
            Row(
                what=f"early stopping, searches of {trials} trials: epochs run, searches that lost their best trial",
                value=_summary(outcomes[trials, ours]),
                against=f"median at the same step: {_summary(outcomes[trials, median_at_step])}",
                aim="60 %, 2 %" if trials == 50 else "",
            )
        )
    return rows


def _summary(outcomes: Sequence[Outcome]) -> str:
    epochs = statistics.fmean(outcome.epochs for outcome in outcomes)
    lost = statistics.fmean(outcome.lost for outcome in outcomes)
    return f"{100 * epochs:.0f} %, {100 * lost:.1f} %"
