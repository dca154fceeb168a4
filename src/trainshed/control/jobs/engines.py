"""Where jobs can run: each engine by name, with what it takes and how attempts are prepared for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainshed.domain.capacity.machine_types import STANDARD, MachineTypes
from trainshed.domain.jobs.accelerators import gpu_fields
from trainshed.domain.jobs.job import ENGINE_LABEL, Job
from trainshed.domain.jobs.training import Training
from trainshed.domain.jobs.workload import Workload
from trainshed.engines import base
from trainshed.errors import CannotProceedError, InvalidArgumentError

_FIELD = f"job.labels.{ENGINE_LABEL}"
_VERSION_FIELD = f"version.labels.{ENGINE_LABEL}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredEngine:
    """An engine and what goes with it."""

    engine: base.Engine
    prepare: Callable[
        [Job], base.AttemptSpec
    ]  #: from a job to an attempt with nothing left to decide; may take minutes
    supports: frozenset[str]  #: the kinds of work that it can do, as `what` of each names them
    gpus: bool = False  #: whether its machines may have some
    shortfall: Callable[[Training], str] = lambda training: ""  #: what it has less of than a gang was promised
    unavailable_reason: str = ""  #: why no new job may name it, and what to do about it; empty: it may


class EngineRegistry:
    """The table of engines. Jobs are stored with the name of theirs, so a name never changes its meaning."""

    def __init__(
        self, table: Mapping[str, RegisteredEngine], *, default: str, machines: MachineTypes = STANDARD
    ) -> None:
        """`default` is the engine of jobs that name none.

        `CannotProceedError` if there is none of that name, or not for now.
        """
        if default not in table:
            raise CannotProceedError(f"The setting engine is {default!r}; the engines are: {', '.join(table)}.")
        if table[default].unavailable_reason:
            raise CannotProceedError(f"The setting engine is {default}. {table[default].unavailable_reason}")
        self.table = table
        self._default = default
        self._machines = machines

    def of(self, job: Job) -> RegisteredEngine:
        return self.table[job.engine]

    def choose(self, labels: Mapping[str, str], work: Workload) -> str:
        """The engine for a new job: the one that its label names, or the default, or else the first that can do it.

        `InvalidArgumentError` for a name that is none, and for an engine that can't do such work.
        """
        asked = next(gpu_fields(work.input, self._machines), None) if isinstance(work, Training) else None
        if asked is None:
            return self._choose(labels, work.what, field=_FIELD)
        return self._choose_with_gpus(labels, work.what, asked)

    def choose_for_hosts(self, labels: Mapping[str, str], what: str) -> str:
        """The engine for the hosts of a new version, in the same way; `what` it is, as `domain.versions` names it."""
        return self._choose(labels, what, field=_VERSION_FIELD)

    def _choose(self, labels: Mapping[str, str], what: str, *, field: str) -> str:
        able = [name for name in dict.fromkeys((self._default, *self.table)) if what in self.table[name].supports]
        if (named := labels.get(ENGINE_LABEL)) is None:
            return able[0]
        if (site := self.table.get(named)) is None:
            raise InvalidArgumentError(
                f"There is no engine {named!r}. The engines are: {', '.join(self.table)}.", field=field
            )
        if site.unavailable_reason:
            raise InvalidArgumentError(site.unavailable_reason, field=field)
        if what not in site.supports:
            raise InvalidArgumentError(
                f"A {what} does not run on engine {named}. Those that can do it: {', '.join(able)}.", field=field
            )
        return named

    def _choose_with_gpus(self, labels: Mapping[str, str], what: str, asked: tuple[str, str]) -> str:
        """As `_choose`, of the engines whose machines may have GPUs. `asked`: the field that asks for them, and how."""
        usual = dict.fromkeys((self._default, *self.table))
        sites = {name: self.table[name] for name in usual}
        able = [
            name for name, site in sites.items() if site.gpus and what in site.supports and not site.unavailable_reason
        ]
        if able and labels.get(ENGINE_LABEL, able[0]) in able:
            return labels.get(ENGINE_LABEL, able[0])
        engine, (field, word) = self._choose(labels, what, field=_FIELD), asked
        instead = (
            f"let it run on engine {able[0]}"
            if able
            else "give the server a Ray cluster whose machines have some: trainshed up --ray-address HOST:PORT"
        )
        raise InvalidArgumentError(
            f"{word} needs GPUs, and engine {engine} has none. Use scale_tier BASIC or a machine type without them, or "
            f"{instead}.",
            field=field,
        )
