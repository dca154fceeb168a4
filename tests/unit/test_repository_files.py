"""The files for code hosts and editors can be read, and what they call exists."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
YAML = [ROOT / ".pre-commit-config.yaml", ROOT / "mkdocs.yml", *sorted((ROOT / ".github").rglob("*.yml"))]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
CALLED = re.compile(r"\bmake ([a-z][a-z-]*)")


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in WORKFLOWS:
        yield from yaml.safe_load(path.read_text())["jobs"].items()


@pytest.mark.parametrize("path", YAML, ids=named)
def test_yaml_can_be_read(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_every_target_is_phony_and_the_makefile_has_those_that_are() -> None:
    [phony] = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert set(phony.split()) == TARGETS


def test_every_step_of_a_workflow_is_an_action_of_a_fixed_version_or_a_target_of_the_makefile() -> None:
    steps = [step for _, job in jobs() for step in job["steps"]]
    assert len(steps) > 5
    for step in steps:
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])
        else:
            assert set(CALLED.findall(step["run"])) & TARGETS, step
            assert set(CALLED.findall(step["run"])) <= TARGETS, step


def test_the_light_tests_run_on_every_python_that_the_metadata_names() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    wanted = [name for each in classifiers for name in re.findall(r"Python :: (3\.\d+)$", each)]
    [light] = [job for name, job in jobs() if name == "light"]
    assert light["strategy"]["matrix"]["python"] == wanted


def test_hooks_call_programs_of_the_locked_environment() -> None:
    [local] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    locked = (ROOT / "requirements" / "dev.lock").read_text()
    for hook in local["hooks"]:
        folder, _, program = hook["entry"].split()[0].rpartition("/")
        assert (hook["language"], folder) == ("system", ".venv/bin")
        assert program == "python" or f"\n{program}==" in locked
        for path in re.findall(r"\btests/\S+", hook["entry"]):
            assert (ROOT / path).exists()


PROSE = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / ".github").rglob("*.md"))]


@pytest.mark.parametrize("path", PROSE, ids=named)
def test_every_target_that_a_page_names_exists(path: Path) -> None:
    typed = re.findall(r"(?:`|^)make ([a-z][a-z-]*)", path.read_text(), re.MULTILINE)
    assert [target for target in typed if target not in TARGETS] == []


def test_the_changelog_has_the_version_of_the_program() -> None:
    [version] = re.findall(r'^__version__ = "(.*)"$', (ROOT / "src/trainshed/__init__.py").read_text(), re.MULTILINE)
    headings = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1] == version
