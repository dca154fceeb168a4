"""Rules for the files of the console that no tool of Python's checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ASSETS = Path(__file__).resolve().parents[3] / "src" / "trainshed" / "console" / "assets"
SCRIPTS = sorted(ASSETS.rglob("*.js"))
STYLES = sorted(ASSETS.rglob("*.css"))

#: ways for a text to become markup or code
DANGEROUS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|setHTMLUnsafe|parseFromString"
    r"|\beval\(|new Function\(|srcdoc|setAttribute\(\s*[\"'](?:style|on)"
)
_IMPORT = re.compile(r"""(?:from|import)\s*\(?\s*["'](\.[^"'`]+)["']""")
_EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)
_CLASS = re.compile(r"\.([a-zA-Z][\w-]*)")
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


@pytest.mark.parametrize("path", [*SCRIPTS, *STYLES], ids=_name)
def test_files_are_of_a_size_to_be_read(path: Path) -> None:
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


def test_every_style_is_on_the_page() -> None:
    linked = re.findall(r'href="/console/(css/[^"]+)"', (ASSETS / "index.html").read_text())
    assert sorted(linked) == [_name(path) for path in STYLES]


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_what_is_exported_is_imported_somewhere(path: Path) -> None:
    others = "\n".join(other.read_text() for other in SCRIPTS if other != path)
    unused = [name for name in _EXPORT.findall(path.read_text()) if not re.search(rf"\b{name}\b", others)]
    assert unused == []


@pytest.mark.parametrize("path", STYLES, ids=_name)
def test_every_class_of_a_style_is_given_to_something(path: Path) -> None:
    """Whole, or as `badge-${kind}`."""
    given = "\n".join(each.read_text() for each in [*SCRIPTS, ASSETS / "index.html"])
    selectors = re.sub(r"/\*.*?\*/|\{[^{}]*\}", " ", path.read_text(), flags=re.DOTALL)
    wanted = {
        name: rf"(?<![\w-])(?:{name}(?![\w-])|{name.rpartition('-')[0] or name}-\$\{{)"
        for name in _CLASS.findall(selectors)
    }
    assert [name for name, pattern in wanted.items() if not re.search(pattern, given)] == []
