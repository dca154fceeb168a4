"""Hosts of several engines as one: each key leads to its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from trainshed.engines.hosts.base import HostEngine, HostEngineRouter
from trainshed.engines.hosts.spec import HostSpec
from trainshed.errors import EngineUnavailableError

SPEC = HostSpec(
    project="example.com:p",
    model="m",
    version="v",
    instance=0,
    python=Path(),
    model_dir=Path(),
    loader="",
    threads=1,
    body_limit=1,
)


class Noted:
    """Hosts that are nothing but keys, and a list of what was asked of them."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def start(self, spec: HostSpec) -> str:
        return f"{spec.project}/{spec.instance}#{len(self.calls)}"

    def prepare(self, spec: HostSpec, *, existing: bool = False) -> HostSpec:
        return replace(spec, alone=existing)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **more: self.calls.append((name, *arguments, *more.values()))


@pytest.fixture
def table() -> dict[str, Noted]:
    return {"local": Noted(), "far": Noted()}


@pytest.fixture
def placed(table: dict[str, Noted]) -> HostEngineRouter:
    return HostEngineRouter(cast(dict[str, HostEngine], table))


def test_a_key_leads_to_its_engine(placed: HostEngineRouter, table: dict[str, Noted]) -> None:
    near, far = placed.start(SPEC), placed.start(replace(SPEC, engine="far"))
    assert near != far
    placed.drain(near)
    placed.kill(far, reason="so")
    placed.status(far)
    placed.compare(far, Path("file"), timeout_s=1.0)
    own = "example.com:p/0#0"
    assert table["local"].calls == [("drain", own)]
    assert table["far"].calls == [("kill", own, "so"), ("status", own), ("compare", own, Path("file"), 1.0)]


def test_all_begin_and_end(placed: HostEngineRouter, table: dict[str, Noted]) -> None:
    placed.open(print)
    placed.close()
    assert [each.calls for each in table.values()] == [[("open", print), ("close",)]] * 2


def test_an_engine_that_is_gone_is_named(placed: HostEngineRouter) -> None:
    with pytest.raises(EngineUnavailableError, match=r"no engine 'moon' any more\. Those there are: local, far"):
        placed.start(replace(SPEC, engine="moon"))


def test_what_is_needed_is_the_engines_own_affair(placed: HostEngineRouter) -> None:
    assert placed.prepare(replace(SPEC, engine="far"), existing=True).alone
