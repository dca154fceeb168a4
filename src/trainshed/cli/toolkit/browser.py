"""Opening an address that is a secret in a browser. Others on the machine can read command lines, so it is on none."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

#: browsers of the terminal, which can't run what our pages are
_OF_THE_TERMINAL = frozenset({"www-browser", "links", "elinks", "lynx", "w3m"})
_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>Trainshed</title>
<p><a href="{url}">Go on</a></p>
"""


def opened(url: str, page: Path | None) -> bool:
    """Whether a browser was told to show it, by way of a page that leads there and that this user alone can read.

    None for `page`: the browser is told the address itself.
    """
    import webbrowser

    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    if getattr(browser, "name", "") in _OF_THE_TERMINAL:
        return False
    if page is None:
        return browser.open(url)
    page.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = page.with_name(f".{page.name}.{os.getpid()}")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(_PAGE.format(url=escape(url, quote=True)))
    fresh.rename(page)
    return browser.open(page.as_uri())
