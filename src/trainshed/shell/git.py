"""The repositories that the well-known documents clone, and the samples that stand in for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """A sample, or a file or folder in it, and where it goes within the clone."""

    sample: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Clone:
    """A `git clone` that is ours to do."""

    repository: str
    folder: str
    parts: tuple[Part, ...]


_IRIS = "Platform-Comparison"

REPOSITORIES: Mapping[str, tuple[Part, ...]] = {
    "GoogleCloudPlatform/cloudml-dist-mnist-example": (Part("mnist_async", ".", "."),),
    "GoogleCloudPlatform/ai-platform-samples": (Part("taxi", ".", "training/tensorflow/structured/base"),),
    "GoogleCloudPlatform/cloudml-samples": (Part("mnist_async", ".", "mnist/distributed"),),
    "eL0ck/Cloud-Data-Science": (
        Part("iris", "data", f"{_IRIS}/data"),
        Part("iris", "setup.py", f"{_IRIS}/package/setup.py"),
        Part("iris", "trainer", f"{_IRIS}/package/trainer"),
        Part("iris", "test.json", f"{_IRIS}/ML-Engine/test.json"),
    ),
}

_URL = re.compile(r"(?:https?://|git@|ssh://git@)?github\.com[/:]([\w.-]+)/([\w.-]+?)(?:\.git)?/?")
_VALUED = ("-b", "--branch", "--depth", "-o", "--origin", "-c", "--config", "-j", "--jobs")


def clone(args: Sequence[str]) -> Clone | None:
    """What a `git clone` of a known repository stands for; None for any other command line of git."""
    if list(args[:1]) != ["clone"]:
        return None
    given: list[str] = []
    rest = list(args[1:])
    while rest:
        word = rest.pop(0)
        if word in _VALUED:
            del rest[:1]
        elif not word.startswith("-"):
            given.append(word)
    match = _URL.fullmatch(given[0]) if given else None
    if match is None or len(given) > 2:
        return None
    asked = f"{match[1]}/{match[2]}".lower()
    for name, parts in REPOSITORIES.items():
        if name.lower() == asked:
            return Clone(name, given[1] if len(given) > 1 else match[2], parts)
    return None
