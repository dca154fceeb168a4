"""Parsers of what strangers send refuse any bytes with the errors that their callers expect."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from trainshed.testing.reliability.fuzz.mutations import mutated
from trainshed.testing.reliability.fuzz.table import MEMORY, mutation_pass, parser_targets
from trainshed.testing.reliability.fuzz.targets import ParserTarget, UnexpectedParserError, run_target

RUNS = 300  #: of each parser; more are in `python -m trainshed.testing.reliability.fuzz.parsers`


@pytest.fixture(scope="module")
def targets() -> Iterator[Mapping[str, ParserTarget]]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield parser_targets(Path(folder))


@pytest.mark.fault("F75")
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")  # of the model
def test_every_parser_takes_or_refuses_any_bytes(targets: Mapping[str, ParserTarget]) -> None:
    assert [each for target in targets.values() for each in mutation_pass(target, seed="1", runs=RUNS)] == []


def test_another_error_is_told_with_its_input() -> None:
    def parse(data: bytes) -> object:
        return {b"good": 1}[data] if b"g" in data else int(data)

    target = ParserTarget(name="numbers", parse=parse, refusals=(ValueError,), seeds=(b"good",))
    assert run_target(target, b"good")
    assert not run_target(target, b"x")
    with pytest.raises(UnexpectedParserError, match=r"numbers: KeyError.* for b'bag'"):
        run_target(target, b"bag")
    found = mutation_pass(target, seed="1", runs=50)
    assert found
    assert [each for each in found if not each.startswith("numbers: KeyError")] == []


def test_a_refused_seed_is_told() -> None:
    target = ParserTarget(name="numbers", parse=int, refusals=(ValueError,), seeds=(b"x",))
    assert mutation_pass(target, seed="1", runs=0) == ["numbers: the seed b'x' is refused"]


def test_mutations_are_repeatable_and_differ() -> None:
    made = [[mutated(b"a long text", random.Random(seed), (b"word",), (b"other",)) for seed in range(99)] for _ in "ab"]
    assert made[0] == made[1]
    assert len(set(made[0])) > 80
    assert any(b"word" in each for each in made[0])
