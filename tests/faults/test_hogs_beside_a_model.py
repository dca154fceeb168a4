"""Fork bomb, memory hog, disk fillers, descriptor hog and log flood as jobs beside a model that answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trainshed.testing.neighbours import HOGS, SETTINGS, Neighbourhood, p99
from trainshed.testing.processes.servers import MeasuredServer

ROUNDS = 5


@pytest.fixture(scope="module")
def neighbourhood(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbourhood]:
    server = MeasuredServer(tmp_path_factory.mktemp("hogs") / "home", SETTINGS).start()
    yield Neighbourhood(server, tmp_path_factory.mktemp("scratch"))
    server.close()


@pytest.mark.soak  # tests/faults/test_limits.py has how each of them ends
@pytest.mark.parametrize("hog", HOGS)
def test_a_model_answers_beside_a_hog(neighbourhood: Neighbourhood, hog: str) -> None:
    answers = neighbourhood.measure(hog, rounds=ROUNDS)
    print(f"{hog}: {p99(answers.quiet) * 1000:.1f} ms alone, {p99(answers.beside) * 1000:.1f} ms, {answers.jobs} jobs")
    assert answers.ratio < 2
