"""The console's files: what is served of them and how, and what may not be in them."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from trainshed.console.files import FOLDER, PAGE, TYPES, console

ASSETS = sorted(path for path in FOLDER.rglob("*") if path.is_file())
TEXTS = [path for path in ASSETS if path.suffix in (".html", ".js", ".css", ".svg")]

#: ways for text to become markup or code, and for something to come from elsewhere
FORBIDDEN = {
    "markup from text": re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment"),
    "a parser of markup": re.compile(r"DOMParser|parseFromString|srcdoc|setHTML"),
    "code from text": re.compile(r"\beval\(|new Function\(|setTimeout\(\s*[\"'`]|javascript:"),
    "a style attribute": re.compile(r"style=[\"']|setAttribute\(\s*[\"'](style|on)", re.IGNORECASE),
    "an address elsewhere": re.compile(
        r"https?://(?!www\.w3\.org/(2000/svg|1999/xhtml)\b)[a-z0-9]|[\"'(]\s*//[a-z0-9]|@import"
    ),
}
INLINE = re.compile(r"<script(?![^>]*\bsrc=)|<style|\son[a-z]+=", re.IGNORECASE)


def offenders(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    """Where a pattern is found: the file and the words."""
    found = ((path, pattern.search(path.read_text())) for path in paths)
    return [f"{path.relative_to(FOLDER)}: {match[0]}" for path, match in found if match]


def test_every_file_is_of_a_kind_that_is_served() -> None:
    assert [path for path in ASSETS if path.suffix not in TYPES] == []


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_has(what: str) -> None:
    assert offenders(FORBIDDEN[what], TEXTS) == []


def test_scripts_and_styles_are_files_of_their_own() -> None:
    assert offenders(INLINE, [path for path in TEXTS if path.suffix in (".html", ".svg")]) == []


def test_scripts_name_each_other_by_relative_paths_that_exist() -> None:
    named = [
        (path, name)
        for path in TEXTS
        if path.suffix == ".js"
        for name in re.findall(r"""(?:\bfrom|\bimport)\s*\(?\s*["']([^"']+)["']""", path.read_text())
    ]
    assert len(named) > 100
    # An absolute one would be a second copy, without the version.
    bad = [(path, name) for path, name in named if not name.startswith(".") or not (path.parent / name).is_file()]
    assert bad == []


def test_the_page_names_files_that_exist() -> None:
    for name in re.findall(r'"/console/([^"]+)"', (FOLDER / PAGE).read_text()):
        assert name in console().assets, name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "js").mkdir()
    (tmp_path / "js" / "main.js").write_text("export {};\n" * 100)
    (tmp_path / "notes.txt").write_text("not served")
    (tmp_path / PAGE).write_text('<script type="module" src="/console/js/main.js"></script>')
    return tmp_path


def test_the_page_asks_for_files_with_the_version_in_their_addresses(folder: Path) -> None:
    files = console(folder)
    assert set(files.assets) == {PAGE, "js/main.js"}
    assert f'"/console/{files.version}/js/main.js"'.encode() in files.assets[PAGE].body
    assert files.find(f"{files.version}/js/main.js") == (files.assets["js/main.js"], True)
    assert files.find("js/main.js") == (files.assets["js/main.js"], False)


@pytest.mark.parametrize(
    "path", ["", "/", "../files.py", "js/../index.html", "notes.txt", "js", "js/main.js/", "x/js/main.js"]
)
def test_nothing_but_known_files_is_found(folder: Path, path: str) -> None:
    assert console(folder).find(path)[0] is None


def test_a_file_is_packed_and_known_by_its_content(folder: Path, tmp_path: Path) -> None:
    asset = console(folder).assets["js/main.js"]
    assert asset.gzipped is not None
    assert gzip.decompress(asset.gzipped) == asset.body
    assert len(asset.gzipped) < len(asset.body) / 5
    before = console(folder)
    (tmp_path / "js" / "main.js").write_text("export const x = 1;\n")
    console.cache_clear()
    after = console(folder)
    assert after.version != before.version
    assert after.assets["js/main.js"].etag != asset.etag
