"""The table of parser targets, and a pass over them by mutations alone: the same seed gives the same inputs."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping
from pathlib import Path

from trainshed.testing.reliability.fuzz.file_targets import file_targets
from trainshed.testing.reliability.fuzz.mutations import mutated
from trainshed.testing.reliability.fuzz.request_targets import request_targets
from trainshed.testing.reliability.fuzz.targets import ParserTarget, UnexpectedParserError, run_target

__all__ = ["MEMORY", "mutation_pass", "parser_targets", "run_target"]

#: where files of targets are written: in memory, where the machine has such a place
MEMORY = next((path for path in ("/dev/shm",) if Path(path).is_dir()), tempfile.gettempdir())  # noqa: S108
MAX_KEPT = 200  #: inputs of a pass that are mutated again, because the parser accepted them


def parser_targets(folder: Path) -> Mapping[str, ParserTarget]:
    """Return all targets by their names. Those that read files write them to `folder`."""
    return {each.name: each for each in (*request_targets(), *file_targets(folder))}


def mutation_pass(target: ParserTarget, *, seed: str, runs: int) -> list[str]:
    """Give a parser its seeds, what once broke it, and `runs` mutations. Returns what went wrong, the first of each
    sort."""
    chance = random.Random(f"{seed}/{target.name}")
    kept = list(target.seeds)
    found: dict[str, str] = {}
    inputs = [*target.seeds, *target.broken]
    for number in range(len(inputs) + runs):
        if number < len(inputs):
            data = inputs[number]
        else:
            data = mutated(chance.choice(kept), chance, target.words, target.seeds)[: target.max_bytes]
        try:
            is_accepted = run_target(target, data)
        except UnexpectedParserError as exc:
            found.setdefault(f"{exc.__cause__!r}"[:60], str(exc))
            continue
        if number < len(target.seeds) and not is_accepted:
            found[f"seed {number}"] = f"{target.name}: the seed {data[:200]!r} is refused"
        if is_accepted and len(kept) < MAX_KEPT:
            kept.append(data)
    return list(found.values())
