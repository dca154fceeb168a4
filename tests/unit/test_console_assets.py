"""Rules for the files of the console that no tool of Python's checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ASSETS = Path(__file__).resolve().parents[2] / "src" / "trainshed" / "console" / "assets"
SCRIPTS = sorted(ASSETS.rglob("*.js"))
STYLES = sorted(ASSETS.rglob("*.css"))

#: ways for a text to become markup or code
DANGEROUS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|setHTMLUnsafe|parseFromString"
    r"|\beval\(|new Function\(|srcdoc|setAttribute\(\s*[\"'](?:style|on)"
)
_IMPORT = re.compile(r"""(?:from|import)\s*\(?\s*["'](\.[^"'`]+)["']""")
_ELSEWHERE = re.compile(r"""["'(]\s*(?:https?:)?//(?!www\.w3\.org/)""")


def _name(path: Path) -> str:
    return str(path.relative_to(ASSETS))


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_no_text_can_become_markup(path: Path) -> None:
    found = [line for line in path.read_text().splitlines() if DANGEROUS.search(line)]
    assert not found, "user text becomes a text node or a property, and nothing else"


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_every_import_is_a_file_of_the_console(path: Path) -> None:
    for target in _IMPORT.findall(path.read_text()):
        assert (path.parent / target).resolve().is_file(), target


@pytest.mark.parametrize("path", [*SCRIPTS, *STYLES, ASSETS / "index.html"], ids=_name)
def test_nothing_comes_from_elsewhere(path: Path) -> None:
    found = [line for line in path.read_text().splitlines() if _ELSEWHERE.search(line) or "@import" in line]
    assert not found, "the console works without a network"


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_scripts_are_of_a_size_to_be_read(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= 420
    assert [line for line in lines if len(line) > 120] == []


def test_the_page_has_no_script_and_no_style_of_its_own() -> None:
    page = (ASSETS / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)", page)
    for target in re.findall(r'(?:src|href)="/console/([^"]+)"', page):
        assert (ASSETS / target).is_file(), target


def test_all_that_the_first_page_needs_is_asked_for_at_once() -> None:
    """Else a module is found only when the one that imports it is here, a round trip later each."""
    first = ASSETS / "js" / "main.js"
    needed, waiting = {first}, [first]
    while waiting:
        path = waiting.pop()
        found = {(path.parent / target).resolve() for target in _IMPORT.findall(path.read_text())} - needed
        needed |= found
        waiting += found
    named = re.findall(r'rel="modulepreload" href="/console/([^"]+)"', (ASSETS / "index.html").read_text())
    assert {ASSETS / name for name in named} == needed - {first}
