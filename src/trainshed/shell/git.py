"""The repositories that well-known documents clone, and the samples that replace them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """A sample, or a file or folder in it, and its path within the clone."""

    sample: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Clone:
    """A `git clone` that a sample replaces."""

    repository: str
    folder: str
    parts: tuple[Part, ...]


_IRIS = "Platform-Comparison"
_IRIS_NOTEBOOK = "IrisCategorisation-TensorFlow"
_DRAWING = "notebooks/Online prediction example.ipynb"

REPOSITORIES: Mapping[str, tuple[Part, ...]] = {
    "GoogleCloudPlatform/cloudml-dist-mnist-example": (
        Part("mnist_async", ".", "."),
        Part("mnist_async", "../notebooks/Online prediction example.ipynb", _DRAWING),
    ),
    "GoogleCloudPlatform/ai-platform-samples": (Part("taxi", ".", "training/tensorflow/structured/base"),),
    "GoogleCloudPlatform/cloudml-samples": (Part("mnist_async", ".", "mnist/distributed"),),
    "eL0ck/Cloud-Data-Science": (
        Part("iris", "data", f"{_IRIS}/data"),
        Part("iris", "setup.py", f"{_IRIS}/package/setup.py"),
        Part("iris", "trainer", f"{_IRIS}/package/trainer"),
        Part("iris", "test.json", f"{_IRIS}/ML-Engine/test.json"),
        Part("iris", f"notebooks/{_IRIS_NOTEBOOK}.ipynb", f"{_IRIS}/{_IRIS_NOTEBOOK}.ipynb"),
        Part("iris", f"notebooks/{_IRIS_NOTEBOOK}-MLE.ipynb", f"{_IRIS}/ML-Engine/{_IRIS_NOTEBOOK}-MLE.ipynb"),
    ),
}

_URL = re.compile(r"(?:https?://|git@|ssh://git@)?github\.com[/:]([\w.-]+)/([\w.-]+?)(?:\.git)?/?")
_FLAGS_WITH_VALUE = ("-b", "--branch", "--depth", "-o", "--origin", "-c", "--config", "-j", "--jobs")


def clone(args: Sequence[str]) -> Clone | None:
    """Return the replacement of a `git clone` of a known repository. Returns None for any other command line of git."""
    if list(args[:1]) != ["clone"]:
        return None
    positional: list[str] = []
    rest = list(args[1:])
    while rest:
        word = rest.pop(0)
        if word in _FLAGS_WITH_VALUE:
            del rest[:1]
        elif not word.startswith("-"):
            positional.append(word)
    match = _URL.fullmatch(positional[0]) if positional else None
    if match is None or len(positional) > 2:
        return None
    repository = f"{match[1]}/{match[2]}".lower()
    for name, parts in REPOSITORIES.items():
        if name.lower() == repository:
            return Clone(name, positional[1] if len(positional) > 1 else match[2], parts)
    return None
