"""The limits that settings mean on a machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainshed.config import Home, Settings
from trainshed.engines.local.limits import WATCHED, find_limits, machine_memory
from trainshed.errors import CannotProceedError

GB = 1_000_000_000


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return Home(tmp_path)


def test_by_default_a_replica_gets_three_quarters_of_the_memory(home: Home) -> None:
    limits = find_limits(home, Settings(), 16_000_000_000)
    assert limits.memory_bytes == 12_000_000_000
    assert find_limits(home, Settings(), machine_memory()).memory_bytes > 0


def test_the_level_has_its_reason(home: Home) -> None:
    limits = find_limits(home, Settings(memory_limit_gb=2.5, file_size_limit_gb=0, disk_limit_gb=3), 16_000_000_000)
    assert (limits.level, limits.reason, limits.folders) == (WATCHED, "only root can make control groups", {})
    assert "2.5 GB of memory, 4,096 processes and threads" in limits.note
    assert limits.note.endswith("at the level watched: only root can make control groups.")
    assert limits.render() == {
        "memory_bytes": 2_500_000_000,
        "processes": 4096,
        "open_files": 65_536,
        "file_bytes": 0,
        "disk_bytes": 3_000_000_000,
        "cpu_weight": 50,
        "cgroups": {},
    }
    assert limits.render(cpu_weight=100)["cpu_weight"] == 100


def test_by_default_a_replica_gets_half_of_what_is_free_on_the_disk_when_it_starts(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = find_limits(home, Settings(), 16_000_000_000)
    for free, most in ((90 * GB, 45 * GB), (50 * GB, 25 * GB), (0, GB)):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: SimpleNamespace(free=free))
        assert limits.render()["disk_bytes"] == most


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory_limit_gb": 0.01}, "0.05 or more, or 0 for three quarters"),
        ({"memory_limit_gb": -1}, "can't be negative"),
        ({"process_limit": 2}, "process_limit is 2; it must be from 16 to 4,194,304"),
        ({"open_file_limit": 10}, "from 64 to 1,048,576"),
        ({"replica_cpu_weight": 0}, "from 1 to 100"),
        ({"replica_cpu_weight": 101}, "from 1 to 100"),
    ],
)
def test_settings_without_sense_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(CannotProceedError, match=message):
        Settings(**settings)  # type: ignore[arg-type]  # values of the settings, by their names
