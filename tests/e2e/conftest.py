"""What tests of whole jobs share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.runtimes.pythons import Pythons
from trainshed.runtimes.uv import find_uv


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """A folder that the nodes of a cluster see too: each has a `/tmp` of its own."""
    folder = Path(tempfile.mkdtemp(prefix="trainshed-cluster-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def oldest_python() -> None:
    """For tests in the runtime 1.15, whose Python comes with no system any more."""
    if not Pythons(find_uv()).can_be_had("3.7"):
        pytest.skip("this machine has no Python 3.7")
