"""`.cache` of a checkout: environments and images that outlive a test run and are shared by all of its processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.config import environment
from trainshed.errors import UnavailableError
from trainshed.runtimes.environments import Runtimes
from trainshed.runtimes.find_links import find_links
from trainshed.runtimes.uv import find_uv

CACHE = Path(__file__).resolve().parents[3] / ".cache"
RUNTIMES = CACHE / "runtimes"
CONTAINERS = CACHE / "containers"


def runtime_python(name: str) -> Path:
    """Return the interpreter of a runtime. Builds it at the first use."""
    return Runtimes(RUNTIMES, find_uv(), find_links=find_links("", environment())).ensure(
        name, lambda fraction, text: None
    )


def torch_python() -> Path:
    """Return the interpreter of the runtime `torch`. Skips the test if this machine's packages have no PyTorch."""
    try:
        return runtime_python("torch")
    except UnavailableError as exc:
        pytest.skip(f"no runtime torch on this machine: {exc}")


def link_runtimes(home: Path) -> Path:
    """Create a state folder that has the runtimes of the checkout. Returns it."""
    RUNTIMES.mkdir(parents=True, exist_ok=True)
    home.mkdir(parents=True, exist_ok=True)
    (home / "runtimes").symlink_to(RUNTIMES)
    return home
