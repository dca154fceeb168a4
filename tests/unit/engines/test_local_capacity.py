"""Capacity on this machine: the tutorials' distributed job beside a small one."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.config import Home, Settings
from trainshed.domain.jobs.gang import gang
from trainshed.domain.jobs.training import Training
from trainshed.engines.base import GangRequest, Pending, Reserved
from trainshed.engines.local.engine import SLOTS_PER_CORE, LocalEngine


def request(job: str, tier: str) -> GangRequest:
    training = Training.parse({"pythonModule": "trainer.task", "runtimeVersion": "2.1", "scaleTier": tier})
    machines = {replica.name: "" for replica in gang(training)}
    return GangRequest(project="p", job=job, attempt=1, folder=Path(f"/jobs/{job}"), machines=machines)


@pytest.mark.parametrize("cores", [2, 4, 8])
def test_a_basic_job_runs_beside_a_standard_one(tmp_path: Path, cores: int) -> None:
    engine = LocalEngine(
        Home(tmp_path),
        Path("/uv"),
        slots=SLOTS_PER_CORE * cores,
        single_replica_share=Settings().single_replica_share,
    )
    standard, basic = request("distributed", "STANDARD_1"), request("small", "BASIC")
    assert isinstance(engine.reserve(standard, []), Reserved)
    assert isinstance(engine.reserve(basic, [standard]), Reserved)
    if cores == 2:
        assert isinstance(engine.reserve(request("second", "STANDARD_1"), [standard, basic]), Pending)
