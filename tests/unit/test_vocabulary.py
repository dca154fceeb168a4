"""Retired words stay retired: docs/glossary.md has the word for each thing."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "tests", "docs", "samples", "bench", "tools")
SUFFIXES = (".py", ".md", ".js", ".ts", ".css", ".html", ".sql", ".toml", ".sh", ".yaml", ".ipynb")
SKIPPED = ("node_modules", "__pycache__")

RETIRED = {
    r"keepers?": "node agent",
    r"stand-?ins?": "replica proxy; fake, in tests",
    r"guardians?": "reaper",
    r"parcels?": "artifact",
    r"couriers?": "fetch token",
    r"lifelines?": "handle",
    r"overtak(?:en|ing)": "write conflict",
    r"shel(?:f|ves)": "backend",
    r"rouse[ds]?": "activate",
    r"sightings?": "status",
    r"(?:short|quick)[ _]way": "fast path",
    r"last words": "log tail",
}
WORD = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(RETIRED)})(?![A-Za-z])", re.IGNORECASE)


def sources() -> list[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    kept = [path for path in found if not set(SKIPPED) & set(path.parts) and path != Path(__file__).resolve()]
    return [ROOT / "README.md", *sorted(kept)]


def test_no_retired_word_is_used() -> None:
    offenders = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in sources()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in WORD.finditer(line)
    ]
    assert offenders == [], f"use the words of docs/glossary.md: {RETIRED}"


def test_words_are_found_in_names_and_prose() -> None:
    text = "The keeper, a Stand-in, `_short_way` and job.overtaken; not bookkeeper, self or bookshelf_keepers2."
    assert [match[0] for match in WORD.finditer(text)] == ["keeper", "Stand-in", "short_way", "overtaken", "keepers"]
