"""No link leads nowhere: files, anchors and images of all Markdown pages, as a code host and as the site read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "samples").rglob("*.md")],
    key=str,
)
ELSEWHERE = ("http://", "https://", "mailto:")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$", re.MULTILINE)
#: what the site can resolve: docs/site/hooks.py brings these pages in from outside of docs/
BROUGHT_IN = re.compile(r"(README|CHANGELOG)\.md|samples/.*(README|ORIGIN)\.md")


def prose(text: str) -> str:
    """The page without its code, where brackets are no links and a # is no heading."""
    text = re.sub(r"^(```+|~~~+).*?^\1\s*?$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


def links(text: str) -> Iterator[tuple[bool, str, str]]:
    """Of each link: whether it is an image, its text, and where it leads."""
    quoted = re.sub(
        r"(`+)(?!`).+?(?<!`)\1(?!`)", lambda found: "code" if "](" in found.group() else found.group(), prose(text)
    )
    for image, words, target in LINK.findall(quoted):
        yield bool(image), words, target
        yield from ((bool(inner[0]), inner[1], inner[2]) for inner in LINK.findall(words))


def anchors(text: str) -> set[str]:
    """The names that headings have on a code host and in the site; those on which the two differ are left out."""
    host: list[str] = []
    site: list[str] = []
    for heading in HEADING.findall(prose(text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "").lower()
        plain = re.sub(r"[^\w\s-]", "", words).strip()
        host.append(_numbered(re.sub(r"\s", "-", plain), host, "-"))
        site.append(_numbered(re.sub(r"[-\s]+", "-", plain.encode("ascii", "ignore").decode()).strip("-"), site, "_"))
    return {one for one, other in zip(host, site, strict=True) if one == other}


def _numbered(name: str, taken: list[str], between: str) -> str:
    count = 0
    unique = name
    while unique in taken:
        count += 1
        unique = f"{name}{between}{count}"
    return unique


def wrong(page: Path, target: str) -> str:
    """What is wrong with a link of a page; nothing if it is good."""
    path, _, anchor = unquote(target).partition("#")
    found = (page.parent / path).resolve() if path else page
    if path.startswith("/") or ROOT not in found.parents:
        return "leads out of the project"
    if not found.exists():
        return "leads to no file"
    inside = found.relative_to(ROOT).as_posix()
    if DOCS in page.parents and DOCS not in found.parents and not BROUGHT_IN.fullmatch(inside):
        return "leads to a file that the site does not have"
    if anchor and (found.suffix != ".md" or anchor not in anchors(found.read_text())):
        return "leads to no heading of that page"
    return ""


def test_every_link_leads_somewhere() -> None:
    bad = [
        f"{page.relative_to(ROOT)}: {target} {reason}"
        for page in PAGES
        for _, _, target in links(page.read_text())
        if not target.startswith(ELSEWHERE) and (reason := wrong(page, target))
    ]
    assert bad == []


def test_images_are_our_own_and_say_what_they_show() -> None:
    images = [(page, words, target) for page in PAGES for image, words, target in links(page.read_text()) if image]
    assert [target for _, _, target in images if target.startswith(ELSEWHERE)] == []
    assert [(page, target) for page, words, target in images if len(words.split()) <= 1] == []


def test_every_image_is_on_a_page() -> None:
    shown = {
        (page.parent / target).resolve() for page in PAGES for image, _, target in links(page.read_text()) if image
    }
    assert set((DOCS / "images").iterdir()) <= shown


def test_every_page_can_be_reached_from_the_index() -> None:
    reached: set[Path] = set()
    waiting = [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = (target.partition("#")[0] for _, _, target in links(page.read_text()) if "://" not in target)
        waiting += [found for target in targets if (found := (page.parent / target).resolve()).suffix == ".md"]
    assert set(DOCS.rglob("*.md")) <= reached


def test_every_page_is_in_the_site_s_navigation() -> None:
    listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE))
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert listed == there | {"readme.md", "changelog.md"}


def begins(before: str, line: str) -> bool:
    """Whether a list or a table begins with this line."""
    item = re.match(r"([-*]|1\.) ", line) and not re.match(r"([-*]|\d+\.) |\s", before)
    return bool(item) or (line.startswith("|") and not before.startswith("|"))


def test_lists_and_tables_begin_after_an_empty_line() -> None:
    """A code host does without the empty line; the site would run the items together."""
    bad = [
        f"{page.relative_to(ROOT)}: no empty line before: {line}"
        for page in PAGES
        for before, line in pairwise(prose(page.read_text()).splitlines())
        if before.strip() and begins(before, line)
    ]
    assert bad == []


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("index.md", ""),
        ("prediction.md#what-can-be-deployed", ""),
        ("prediction.md#what-can-not-be-deployed", "leads to no heading of that page"),
        ("no-such-page.md", "leads to no file"),
        ("images/no-such-picture.png", "leads to no file"),
        ("/etc/passwd", "leads out of the project"),
        ("../../elsewhere.md", "leads out of the project"),
        ("../Makefile", "leads to a file that the site does not have"),
    ],
)
def test_what_is_wrong_with_a_link_is_found(target: str, reason: str) -> None:
    assert wrong(DOCS / "index.md", target) == reason


def test_code_holds_no_links_and_no_headings() -> None:
    text = "# One\n```\n# [two](two.md)\n```\n`[three](three.md)` [four `4`](four.md) ![a b](five.png)\n"
    assert [target for _, _, target in links(text)] == ["four.md", "five.png"]
    assert anchors(text) == {"one"}


def test_two_headings_of_one_name_have_two_anchors_where_both_readers_agree() -> None:
    assert anchors("# A `b` (c)\n## A b c\n## gs:// inside\n") == {"a-b-c", "gs-inside"}
