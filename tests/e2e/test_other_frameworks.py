"""PyTorch and JAX find their gang by the variables they know, with trainers that know nothing of Trainshed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.submitter import Submitter

GANG = {
    "scaleTier": "CUSTOM",
    "masterType": "n1-standard-4",
    "workerType": "n1-standard-4",
    "workerCount": "1",
}

TORCH = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.rand(64, 1)
for _ in range(200):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), 2 * inputs + 1).backward()
    optimizer.step()
weight, bias = (float(value) for value in model.parameters())
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: weight {weight:.6f} bias {bias:.6f}", flush=True)
dist.barrier()  # the end of the master ends the others, whatever they have to say
dist.destroy_process_group()
"""

JAX = """
import os
import jax

jax.distributed.initialize(  # it finds the coordinator by itself, and has no variables of its own for these two
    num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])
)
from jax.experimental import multihost_utils

total = multihost_utils.process_allgather(jax.numpy.array([jax.process_index() + 1.0])).sum()
print(f"process {jax.process_index()} of {jax.process_count()}: total {float(total)}", flush=True)
jax.distributed.shutdown()
"""


@pytest.fixture
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submitter]:
    """A server that looks for wheels where the machine's pip does: a CPU build of PyTorch is often kept there."""
    scratch = tmp_path_factory.mktemp("frameworks")
    found = {"UV_FIND_LINKS": links} if (links := os.environ.get("PIP_FIND_LINKS")) else {}
    running = RunningServer(scratch / "home", environment=found).start()
    yield Submitter(running, "frameworks", scratch)
    assert running.close() == 0


@pytest.mark.soak  # JAX finds its gang by variables of the same place, and is smaller
@pytest.mark.timeout(900)
def test_pytorch_ddp_by_gloo(jobs: Submitter) -> None:
    jobs.submit("ddp", TORCH, requires=["torch==2.13.0", "numpy"], **GANG)
    done = jobs.wait("ddp", timeout_s=800)
    assert done["state"] == "SUCCEEDED", done.get("errorMessage")
    said = dict(re.findall(r"^rank (\d) of 2: (.*)$", "\n".join(jobs.lines("ddp")), re.MULTILINE))
    assert set(said) == {"0", "1"}
    assert said["0"] == said["1"]  # the gradients were averaged, so both hold the same model
    weight = re.match(r"weight ([\d.]+)", said["0"])
    assert weight is not None
    assert abs(float(weight[1]) - 2) < 0.5


@pytest.mark.timeout(900)
def test_jax_distributed(framework_server: RunningServer, tmp_path: Path) -> None:
    jobs = Submitter(framework_server, "jax-gang", tmp_path)
    jobs.submit("jax", JAX, requires=["jax"], **GANG)
    done = jobs.wait("jax", timeout_s=800)
    assert done["state"] == "SUCCEEDED", done.get("errorMessage")
    assert {"process 0 of 2: total 3.0", "process 1 of 2: total 3.0"} <= set(jobs.lines("jax"))
