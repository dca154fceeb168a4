"""The lock files are in step with pyproject.toml, agree with each other and name no host."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["project"]
GROUPS = PROJECT["dependency-groups"]
REMEDY = "run: make lock"

#: of each lock, what must be in it; the rest is what that needs
DECLARED = {
    "runtime": [*PACKAGES["dependencies"]],
    "dev": [*PACKAGES["dependencies"], *GROUPS["dev"]],
    "docs": [*GROUPS["docs"]],
    "build": [*PROJECT["build-system"]["requires"]],
}
PIN = re.compile(r"^(\S+==\S+(?: ; .*?)?)(?: \\)?\n((?:    .*\n)*)", re.MULTILINE)


@dataclass(frozen=True)
class Pin:
    """One release of a lock file."""

    requirement: Requirement
    hashes: int
    direct: bool

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        [pin] = self.requirement.specifier
        return pin.version


def pins(lock: str) -> list[Pin]:
    """The releases that a lock file names; more than one of a package if Pythons or platforms differ."""
    found = PIN.findall((LOCKS / f"{lock}.lock").read_text())
    return [
        Pin(
            requirement=Requirement(line),
            hashes=below.count("--hash=sha256:"),
            direct="trainshed (pyproject.toml" in below or "# via" not in below,  # the latter of build.lock
        )
        for line, below in found
    ]


@pytest.mark.parametrize("lock", DECLARED)
def test_a_lock_holds_what_is_declared(lock: str) -> None:
    locked = pins(lock)
    for requirement in map(Requirement, DECLARED[lock]):
        found = [pin for pin in locked if pin.name == canonicalize_name(requirement.name)]
        assert found, f"{requirement} is not in requirements/{lock}.lock; {REMEDY}"
        for pin in found:
            assert pin.version in requirement.specifier, f"{pin.requirement} is not {requirement}; {REMEDY}"
            assert requirement.extras <= pin.requirement.extras, f"{pin.requirement} lacks extras; {REMEDY}"


@pytest.mark.parametrize("lock", DECLARED)
def test_a_lock_holds_nothing_that_is_no_longer_declared(lock: str) -> None:
    declared = {canonicalize_name(Requirement(each).name) for each in DECLARED[lock]}
    assert {pin.name for pin in pins(lock) if pin.direct} == declared, REMEDY


@pytest.mark.parametrize("lock", DECLARED)
def test_every_release_has_hashes_and_no_line_names_a_host(lock: str) -> None:
    text = (LOCKS / f"{lock}.lock").read_text()
    assert [str(pin.requirement) for pin in pins(lock) if not pin.hashes] == []
    assert len(pins(lock)) == len(re.findall(r"^[^\s#]", text, re.MULTILINE)), "a line is no pin"
    assert "://" not in text
    assert "--index" not in text


@pytest.mark.parametrize("lock", [name for name in DECLARED if name != "dev"])
def test_one_environment_can_hold_all_locks(lock: str) -> None:
    in_dev: dict[str, set[str]] = {}
    for pin in pins("dev"):
        in_dev.setdefault(pin.name, set()).add(pin.version)
    assert [pin.requirement for pin in pins(lock) if pin.version not in in_dev.get(pin.name, {pin.version})] == []


def test_tests_have_every_extra() -> None:
    wanted = {each for extra in PACKAGES["optional-dependencies"].values() for each in extra}
    assert wanted <= set(GROUPS["dev"])


def test_locks_are_made_for_the_oldest_python_that_is_supported() -> None:
    [oldest] = re.findall(r"--python-version (\S+)", (ROOT / "Makefile").read_text())
    assert PACKAGES["requires-python"] == f">={oldest}"
