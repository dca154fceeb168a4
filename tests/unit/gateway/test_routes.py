"""Which version a request gets, and that routes change in one step."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest

from trainshed.domain.models.hosting import ServingState
from trainshed.gateway.routes import ModelRoute, Routes, VersionRoute


def model(*versions: str, default: str = "", split: tuple[tuple[str, int], ...] = ()) -> ModelRoute:
    routes = {name: VersionRoute(project="p", model="m", version=name, state=ServingState.READY) for name in versions}
    return ModelRoute(project="p", model="m", default=default, split=split, versions=routes)


def picked(route: ModelRoute, draw: float) -> str:
    found = route.pick(draw)
    return found.version if found else ""


def test_without_a_split_the_default_gets_everything() -> None:
    assert {picked(model("v1", "v2", default="v2"), draw) for draw in (0.0, 0.5, 0.999)} == {"v2"}


def test_a_split_is_kept_to_the_weight() -> None:
    route = model("v1", "v2", default="v1", split=(("v1", 90), ("v2", 10)))
    assert [picked(route, draw) for draw in (0.0, 0.8999, 0.9, 0.9999)] == ["v1", "v1", "v2", "v2"]
    source = random.Random(7)
    counts = Counter(picked(route, source.random()) for _ in range(10_000))
    assert 850 < counts["v2"] < 1150
    assert counts["v1"] + counts["v2"] == 10_000


@pytest.mark.parametrize("draw", [0.0, 0.3, 0.9999])
def test_a_version_of_the_split_that_is_gone_gets_nothing(draw: float) -> None:
    assert picked(model("v2", default="v2", split=(("v1", 90), ("v2", 10))), draw) == "v2"


@pytest.mark.parametrize("draw", [0.0, 0.9999])
def test_a_split_without_any_weight_leaves_it_to_the_default(draw: float) -> None:
    assert picked(model("v1", "v2", default="v1", split=(("v2", 0),)), draw) == "v1"


def test_without_a_default_nobody_is_picked() -> None:
    assert model("v1").pick(0.5) is None


def test_what_is_published_is_there_and_what_is_withdrawn_is_not() -> None:
    routes = Routes()
    told: list[int] = []
    routes.listen(lambda: told.append(len(routes.models)))
    before = routes.models
    routes.publish(model("v1", default="v1"))
    assert before == {}  # whoever looked before goes on with what was true then
    assert routes.models[("p", "m")].default == "v1"
    routes.withdraw("p", "m")
    routes.withdraw("p", "absent")
    assert routes.models == {}
    assert told == [1, 0, 0]


def test_threads_lose_nothing_of_one_another() -> None:
    routes = Routes()

    def publish(thread: int) -> None:
        for number in range(100):
            routes.publish(ModelRoute(project=f"p{thread}", model=f"m{number}"))

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(routes.models) == 800
