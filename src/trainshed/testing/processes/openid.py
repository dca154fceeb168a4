"""A real OpenID provider on this machine (oidc-provider, from npm), and a person who signs in there."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.cookiejar import CookieJar
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import urlencode, urljoin

from trainshed.node.process.ports import free_ports
from trainshed.testing.eventually import eventually

ROOT = Path(__file__).parents[4]
_MODULE = Path(sys.prefix) / "console/node_modules/oidc-provider/lib/index.js"
_MAX_STEPS = 20


class OpenIdProvider:
    """The provider as a process. Use it as a context."""

    def __init__(self, redirect_uri: str) -> None:
        self.port = free_ports(1)[0]
        self.issuer = f"http://127.0.0.1:{self.port}"
        self._redirect_uri = redirect_uri
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        node = shutil.which("node", path=str(Path(sys.executable).parent)) or shutil.which("node")
        assert node is not None and _MODULE.exists(), "`make .venv/.ready-console` installs Node and the provider"
        script = ROOT / "tests/oidc/provider.mjs"
        self._process = subprocess.Popen(
            [node, str(script), str(_MODULE), str(self.port), self._redirect_uri],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._expect("ready")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            with self._process:  # it ends when its stdin is closed; `node` may be a program that starts it
                self._stream("stdin").close()

    def set_groups(self, groups: Mapping[str, Sequence[str]]) -> None:
        """Set the groups of people."""
        print(json.dumps(groups), file=self._stream("stdin"), flush=True)
        self._expect("set")

    def _expect(self, line: str) -> None:
        output = self._stream("stdout")
        eventually(lambda: output.readline().strip(), lambda said: said == line)

    def _stream(self, name: str) -> IO[str]:
        stream: IO[str] | None = getattr(self._process, name)
        assert stream is not None
        return stream


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_fields: Any) -> None:
        return None


class PersonWithBrowser:
    """Follows links and redirects, keeps cookies, and fills in the two forms of the provider."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPCookieProcessor(CookieJar()))

    def open(self, url: str, *, stop_at: str = "") -> tuple[str, int, bytes]:
        """Go on until a page is no redirect and no form, or begins with `stop_at`, which is not opened.

        Returns the address, the status and the body.
        """
        form: bytes | None = None
        for _ in range(_MAX_STEPS):
            if stop_at and url.startswith(stop_at):
                return url, 0, b""
            try:
                response: http.client.HTTPResponse | urllib.error.HTTPError = self._opener.open(url, form, timeout=60)
            except urllib.error.HTTPError as exc:
                response = exc
            with response:
                status, body, location = int(response.status or 0), response.read(), response.headers.get("location")
            form = None
            if location and 300 <= status < 400:
                url = urljoin(url, location)
            elif found := re.search(rb'<form[^>]*action="([^"]+)"', body):
                url = urljoin(url, found[1].decode().replace("&amp;", "&"))
                prompt = "login" if b'name="login"' in body else "consent"
                hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', body.decode())
                form = urlencode(dict(hidden) | {"prompt": prompt, "login": self._name, "password": "any"}).encode()
            else:
                return url, status, body
        raise AssertionError(f"still at {url}")
