"""Rules for the files of the console that no tool of Python's checks."""

from __future__ import annotations

import re
from pathlib import Path

ASSETS = Path(__file__).resolve().parents[3] / "src" / "trainshed" / "console" / "assets"
SCRIPTS = sorted(ASSETS.rglob("*.js"))
STYLES = sorted(ASSETS.rglob("*.css"))

_IMPORT = re.compile(r"""(?:from|import)\s*\(?\s*["'](\.[^"'`]+)["']""")
_EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)
_CLASS = re.compile(r"\.([a-zA-Z][\w-]*)")


def _name(path: Path) -> str:
    return str(path.relative_to(ASSETS))


def test_files_are_of_a_size_to_be_read() -> None:
    lines = {_name(path): path.read_text().splitlines() for path in (*SCRIPTS, *STYLES)}
    assert [name for name, each in lines.items() if len(each) > 420] == []
    assert [(name, line) for name, each in lines.items() for line in each if len(line) > 120] == []


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


def test_what_is_exported_is_imported_somewhere() -> None:
    words = {path: set(re.findall(r"\w+", path.read_text())) for path in SCRIPTS}
    unused = [
        (_name(path), name)
        for path in SCRIPTS
        for name in _EXPORT.findall(path.read_text())
        if not any(name in found for other, found in words.items() if other != path)
    ]
    assert unused == []


def test_every_class_of_a_style_is_given_to_something() -> None:
    """Whole, or as `badge-${kind}`."""
    given = "\n".join(each.read_text() for each in [*SCRIPTS, ASSETS / "index.html"])
    words, stems = set(re.findall(r"[\w-]+", given)), set(re.findall(r"([\w-]+)-\$\{", given))
    styles = "\n".join(path.read_text() for path in STYLES)
    selectors = re.sub(r"/\*.*?\*/|\{[^{}]*\}", " ", styles, flags=re.DOTALL)
    wanted = set(_CLASS.findall(selectors))
    assert len(wanted) > 100
    assert [name for name in wanted if name not in words and (name.rpartition("-")[0] or name) not in stems] == []
