"""What a conformance suite is, and the list of them. A module of this package has one, as `SUITE`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainshed.testing.conformance.targets import TRAINSHED, Target

OUTCOMES = ("passed", "failed", "skipped")
#: modules of this package that have a suite, in the order of the page
NAMES = ("airflow", "google_cloud_storage", "gcsfs", "node_storage")


@dataclass(frozen=True, slots=True)
class Case:
    """What came of one test of a suite."""

    name: str
    outcome: str  #: one of `OUTCOMES`
    message: str = ""  #: why it failed or was skipped, on one line

    def __post_init__(self) -> None:
        if self.outcome not in OUTCOMES:
            raise ValueError(f"{self.outcome!r} is no outcome of a test: {', '.join(OUTCOMES)}.")


@dataclass(frozen=True, slots=True)
class Installed:
    """What a suite needs, installed in a folder of its own."""

    program: Path  #: the Python or Node that runs it
    versions: Mapping[str, str]  #: of the client, and of what else the figures depend on


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite of tests of a real client.

    `run` gets what `install` returned, a target, and an empty folder. It returns all cases, and raises if the suite did
    not run to its end: such a run is not recorded.
    """

    name: str
    title: str  #: its first cell in the table
    install: Callable[[Path], Installed]  #: idempotent; gets its folder in `.cache/conformance`
    run: Callable[[Installed, Target, Path], Sequence[Case]]
    targets: tuple[str, ...] = (TRAINSHED,)
    #: expressions that match the names of cases -> why they fail here
    reasons: Mapping[str, str] = field(default_factory=dict)

    def reason(self, case: str) -> str:
        """Return why a case fails. Empty if nobody has said."""
        return next((text for pattern, text in self.reasons.items() if re.fullmatch(pattern, case)), "")


def load(name: str) -> Suite:
    """Return the suite of a module. Raises `ValueError` if there is none of this name."""
    if name not in NAMES:
        raise ValueError(f"There is no suite {name!r}. There are: {', '.join(NAMES)}.")
    suite: Suite = importlib.import_module(f"{__package__}.{name}").SUITE
    return suite
