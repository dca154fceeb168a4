"""Metrics of this machine for the last minutes, sampled every few seconds, in memory."""

from __future__ import annotations

import logging
import shutil
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from trainshed.background import BackgroundLoop
from trainshed.domain.times import now_us, rfc3339

LOG = logging.getLogger("trainshed.services.console.machine_metrics")

SAMPLE_INTERVAL_S = 5.0
SAMPLE_RETENTION_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSample:
    """A sample of the machine. `cpu` is the used fraction of all cores, 0 to 1, since the previous sample."""

    time_us: int
    cpu: float
    memory_used_bytes: int
    memory_bytes: int
    disk_free_bytes: int
    disk_bytes: int


def sample_machine(folder: Path) -> MachineSample:
    """Sample the machine, and the disk of this folder."""
    memory, disk = psutil.virtual_memory(), shutil.disk_usage(folder)
    return MachineSample(
        time_us=now_us(),
        cpu=round(psutil.cpu_percent() / 100, 4),
        memory_used_bytes=memory.total - memory.available,
        memory_bytes=memory.total,
        disk_free_bytes=disk.free,
        disk_bytes=disk.total,
    )


class MachineMetrics:
    """Samples the machine on its own thread. Other threads may read. `begin` and `close` are called once each."""

    def __init__(
        self, sample: Callable[[], MachineSample], *, cpus: int, interval_s: float = SAMPLE_INTERVAL_S
    ) -> None:
        self._sample = sample
        self._cpus = cpus
        self._interval_s = interval_s
        self._samples: deque[MachineSample] = deque(maxlen=max(1, round(SAMPLE_RETENTION_S / interval_s)))
        self._primed = False
        self._loop = BackgroundLoop("machine", self._step)

    def begin(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.stop()
        self._loop.join()

    @property
    def last(self) -> MachineSample:
        """The newest sample; takes one if there is none yet."""
        return self._samples[-1] if self._samples else self._sample()

    def body(self) -> dict[str, Any]:
        last = self.last
        return {
            "cpus": self._cpus,
            "cpu": last.cpu,
            "memoryBytes": last.memory_bytes,
            "memoryUsedBytes": last.memory_used_bytes,
            "diskBytes": last.disk_bytes,
            "diskFreeBytes": last.disk_free_bytes,
            "history": [
                {"time": rfc3339(each.time_us), "cpu": each.cpu, "memoryUsedBytes": each.memory_used_bytes}
                for each in tuple(self._samples)
            ],
        }

    def _step(self) -> float:
        sample = self._try_sample()
        if sample is not None and self._primed:
            self._samples.append(sample)
        self._primed = True  # the first value of `cpu` has no predecessor and is meaningless
        return self._interval_s

    def _try_sample(self) -> MachineSample | None:
        try:
            return self._sample()
        except (OSError, psutil.Error) as exc:
            LOG.warning("machine.not_seen reason=%s", exc)
            return None
