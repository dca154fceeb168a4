"""The engine registry: each engine by name, with the workloads it supports and its attempt builder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainshed.domain.capacity.machine_types import STANDARD, MachineTypes
from trainshed.domain.jobs.accelerators import gpu_fields
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.training import Training
from trainshed.domain.jobs.workload import Workload
from trainshed.domain.names import ENGINE_LABEL
from trainshed.engines import base
from trainshed.errors import CannotProceedError, InvalidArgumentError

_FIELD = f"job.labels.{ENGINE_LABEL}"
_VERSION_FIELD = f"version.labels.{ENGINE_LABEL}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredEngine:
    """An engine with its attempt builder and its capabilities."""

    engine: base.Engine
    prepare: Callable[[Job], base.AttemptSpec]  #: builds the attempt spec of a job; may block for minutes
    clear: Callable[[Job], None] = lambda job: None  #: removes what only a job that has not ended may have
    supports: frozenset[str]  #: the workloads that it supports, by their `what`
    gpus: bool = False  #: whether its nodes may have GPUs
    uniform_slots: bool = False  #: whether only the number of replicas decides if a gang fits
    shortfall: Callable[[Training], str] = lambda training: ""  #: what a gang gets less of; "" if nothing
    unavailable_reason: str = ""  #: why no new job may use it, with a remedy; empty if jobs may


class EngineRegistry:
    """The table of engines. Jobs store the name of their engine, so a name never changes its meaning."""

    def __init__(
        self, table: Mapping[str, RegisteredEngine], *, default: str, machines: MachineTypes = STANDARD
    ) -> None:
        """`default` is the engine of jobs that name none.

        Raises `CannotProceedError` if it does not exist or is unavailable.
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

    def choose(self, labels: Mapping[str, str], workload: Workload) -> str:
        """Return the engine for a new job: from its label, else the default, else the first that supports it.

        Raises `InvalidArgumentError` for an unknown engine, and for one that does not support the workload.
        """
        gpu_field = next(gpu_fields(workload.input, self._machines), None) if isinstance(workload, Training) else None
        if gpu_field is None:
            return self._choose(labels, workload.what, field=_FIELD)
        return self._choose_with_gpus(labels, workload.what, gpu_field)

    def choose_for_hosts(self, labels: Mapping[str, str], what: str) -> str:
        """Return the engine for a new version's hosts, by the same rules.

        `what` is a constant of `domain.models.version`.
        """
        return self._choose(labels, what, field=_VERSION_FIELD)

    def _choose(self, labels: Mapping[str, str], what: str, *, field: str) -> str:
        candidates = [
            candidate
            for candidate in dict.fromkeys((self._default, *self.table))
            if what in self.table[candidate].supports
        ]
        if (name := labels.get(ENGINE_LABEL)) is None:
            return candidates[0]
        if (registered := self.table.get(name)) is None:
            raise InvalidArgumentError(
                f"There is no engine {name!r}. The engines are: {', '.join(self.table)}.", field=field
            )
        if registered.unavailable_reason:
            raise InvalidArgumentError(registered.unavailable_reason, field=field)
        if what not in registered.supports:
            raise InvalidArgumentError(
                f"A {what} does not run on engine {name}. Those that can do it: {', '.join(candidates)}.", field=field
            )
        return name

    def _choose_with_gpus(self, labels: Mapping[str, str], what: str, gpu_field: tuple[str, str]) -> str:
        """Like `_choose`, among engines whose nodes may have GPUs.

        `gpu_field` is the field that requests GPUs, and its value.
        """
        names = dict.fromkeys((self._default, *self.table))
        engines = {name: self.table[name] for name in names}
        candidates = [
            name
            for name, registered in engines.items()
            if registered.gpus and what in registered.supports and not registered.unavailable_reason
        ]
        if candidates and labels.get(ENGINE_LABEL, candidates[0]) in candidates:
            return labels.get(ENGINE_LABEL, candidates[0])
        engine, (field, word) = self._choose(labels, what, field=_FIELD), gpu_field
        remedy = (
            f"let it run on engine {candidates[0]}"
            if candidates
            else "give the server a Ray cluster whose machines have some: trainshed up --ray-address HOST:PORT"
        )
        raise InvalidArgumentError(
            f"{word} needs GPUs, and engine {engine} has none. Use scale_tier BASIC or a machine type without them, or "
            f"{remedy}.",
            field=field,
        )
