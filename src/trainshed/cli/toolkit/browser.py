"""Opening a secret URL in a browser. Other users can read command lines, so the URL is in none."""

from __future__ import annotations

from html import escape
from pathlib import Path

from trainshed.node.files import write_file

#: text browsers, which can't run the pages
_TEXT_BROWSERS = frozenset({"www-browser", "links", "elinks", "lynx", "w3m"})
_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>Trainshed</title>
<p><a href="{url}">Go on</a></p>
"""


def open_browser(url: str, page: Path | None) -> bool:
    """Open a URL through a page that only this user can read and that redirects to it.

    Returns whether a browser started.

    With None for `page` the browser gets the URL itself.
    """
    import webbrowser

    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    if getattr(browser, "name", "") in _TEXT_BROWSERS:
        return False
    if page is None:
        return browser.open(url)
    page.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_file(page, _PAGE.format(url=escape(url, quote=True)).encode())
    return browser.open(page.as_uri())
