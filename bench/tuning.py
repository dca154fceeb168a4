"""Tuning: what searches find, what early stopping saves, empty trials, suggestions over HTTP, and the page of a search.

python bench/tuning.py                           # all of it, about an hour on two idle cores, most of it Optuna's GP
python bench/tuning.py --quick                   # small numbers of everything; writes no table
python bench/tuning.py --parts trials suggest    # some parts; their rows are replaced
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence

from report import Row, publish, show
from searches import page, quality, stopping, studies, trials

PARTS = ("quality", "stopping", "trials", "suggest", "points", "page")


def rows_of(part: str, *, quick: bool, processes: int, ray: bool) -> list[Row]:
    parts: dict[str, Callable[[], list[Row]]] = {
        "quality": lambda: qualities(quick=quick, processes=processes),
        "stopping": lambda: stopping.early_stopping(searches=20 if quick else 400, processes=processes),
        "trials": lambda: trials.empty_trials(count=10 if quick else 30, fast_count=20 if quick else 100, ray=ray),
        "suggest": lambda: studies.suggestions(rounds=10 if quick else 200, trials=80 if quick else 1000),
        "points": lambda: [studies.repeated_points(searches=4 if quick else 100)],
        "page": lambda: page.page(trials=100 if quick else 1000, rounds=1 if quick else 10),
    }
    return parts[part]()


def qualities(*, quick: bool, processes: int) -> list[Row]:
    searches = [name for name in quality.SEARCHES if not quick or name != quality.GP]
    seeds = range(1, 2 if quick else 7)
    return quality.quality(searches=searches, trials=20 if quick else 100, seeds=seeds, processes=processes)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--quick", action="store_true", help="small numbers, to see that it works")
    parser.add_argument("--no-ray", action="store_true", help="leave Ray Tune out")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="searches at the same time")
    args = parser.parse_args(words)
    for part in args.parts:
        rows = rows_of(part, quick=args.quick, processes=args.processes, ray=not args.no_ray)
        if args.quick:
            show(rows)
        else:
            publish("tuning", rows, keep=True)


if __name__ == "__main__":
    main()
