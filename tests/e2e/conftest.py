"""What tests of whole jobs share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainshed.runtimes.pythons import Pythons
from trainshed.runtimes.uv import find_uv
from trainshed.testing.cache import RUNTIMES
from trainshed.testing.clusters.gangs import make_runtime
from trainshed.testing.clusters.ray import NodeSize, RayCluster, ray_environment


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """A folder that the nodes of a cluster see too: each has a `/tmp` of its own."""
    with _scratch() as folder:
        yield folder


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="trainshed-cluster-", dir="/var/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[RayCluster]:
    """A head and two nodes, for all files of a process: `RAY_FILES` of `trainshed.testing.budget`."""
    with _scratch() as folder:
        make_runtime(folder / "runtimes")
        for path in RUNTIMES.iterdir():
            (folder / "runtimes" / path.name).symlink_to(path.resolve())
        size = NodeSize(cpus=2, memory_gb=8, gpus=1)
        python = ray_environment(RUNTIMES)
        with RayCluster(python, folder, nodes=2, size=size, runtimes=folder / "runtimes") as cluster:
            yield cluster


@pytest.fixture(scope="module")
def cluster(shared_cluster: RayCluster) -> RayCluster:
    """The cluster with both nodes, whatever became of them in the file before."""
    shared_cluster.restore()
    return shared_cluster


@pytest.fixture(scope="session")
def oldest_python() -> None:
    """For tests in the runtime 1.15, whose Python comes with no system any more."""
    if not Pythons(find_uv()).can_be_had("3.7"):
        pytest.skip("this machine has no Python 3.7")
