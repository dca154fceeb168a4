"""What tests on clusters share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """A folder that the nodes of a cluster see too: each has a `/tmp` of its own."""
    folder = Path(tempfile.mkdtemp(prefix="trainshed-cluster-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
