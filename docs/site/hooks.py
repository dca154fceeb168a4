"""Hooks of mkdocs: pages outside of docs/, and a check that the site loads nothing from other hosts.

Links are written for a code host, where README.md and docs/ are folders of one tree. In the site all pages are below
one root, so a link that leaves docs/ is bent to where that page is there.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]

#: what a page would load from another host when it is opened; links are allowed
FOREIGN = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//|<link\b[^>]*\bhref=["']?(?:https?:)?//"""
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of docs/."""
    pages = {"readme.md": ROOT / "README.md", "changelog.md": ROOT / "CHANGELOG.md"}
    for path in [*ROOT.glob("samples/**/README.md"), *ROOT.glob("samples/**/ORIGIN.md")]:
        pages[path.relative_to(ROOT).as_posix()] = path
    for name, path in pages.items():
        files.append(File.generated(config, name, content=path.read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links between docs/ and other folders."""
    if page.file.src_uri == "readme.md":
        return markdown.replace("](docs/", "](").replace("](CHANGELOG.md", "](changelog.md")
    if "/" not in page.file.src_uri:
        markdown = re.sub(r"\]\(\.\./README\.md", "](readme.md", markdown)
        return re.sub(r"\]\(\.\./CHANGELOG\.md", "](changelog.md", markdown).replace("](../samples/", "](samples/")
    return markdown


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Fail if a page loads something from another host: the site must work without a network."""
    found = FOREIGN.search(output)
    if found:
        raise PluginError(f"{page.file.src_uri} loads something from another host: {found.group()}")
    return output
