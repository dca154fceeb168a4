"""Which versions of uvicorn have the fast path, and what the server says of others."""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path
from typing import cast

import pytest

from trainshed.api.app import Api
from trainshed.api.listener import HEADERS_TIMEOUT_S, listener_config
from trainshed.api.uvicorn_adapter import KNOWN_VERSIONS, installed_versions, unknown_versions
from trainshed.connections import Connections
from trainshed.server import _fast_path
from trainshed.services.registry import Services
from trainshed.services.server import ServerInfo

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
OTHER = installed_versions() | {"uvicorn": "0.999.1"}


def api() -> Api:
    return Api(cast(Services, None), allowed_hosts=(), authentication=True, body_limit=1)  # it is asked nothing here


def test_the_installed_versions_are_known() -> None:
    assert unknown_versions(installed_versions()) == ""


def test_the_project_requires_the_known_versions() -> None:
    required = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    for name, (low, end) in KNOWN_VERSIONS.items():
        assert f"{name}>={low},<{end}" in required


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("uvicorn", "0.53.9"),
        ("uvicorn", "0.55.0"),
        ("uvicorn", "1.0"),
        ("httptools", "0.6.3"),
        ("httptools", "0.10.0"),
        ("httptools", "0.10"),
    ],
)
def test_any_other_version_is_named_with_those_that_are_known(name: str, version: str) -> None:
    reason = unknown_versions(installed_versions() | {name: version})
    assert reason.startswith("The fast path of predictions is off")
    assert f"{name} {version}" in reason
    known = " ".join(f"'{each}>={low},<{end}'" for each, (low, end) in KNOWN_VERSIONS.items())
    assert f"`pip install {known}`" in reason


def test_the_server_says_that_the_fast_path_is_off(caplog: pytest.LogCaptureFixture) -> None:
    app = api()
    known, other = (
        ServerInfo(url="", tls_url="", pid=1, home="", version="", fast_path_off_reason=unknown_versions(versions))
        for versions in (installed_versions(), OTHER)
    )
    with caplog.at_level(logging.INFO, logger="trainshed.server"):
        assert _fast_path(app, known) is app.fast_path
        assert caplog.messages == []
        assert _fast_path(app, other) is None
    [message] = caplog.messages
    assert message.startswith("server.fast_path_off reason=The fast path of predictions is off")
    assert "uvicorn 0.999.1" in message
    assert message.endswith(other.fast_path_off_reason)


@pytest.mark.parametrize("fast", [True, False])
def test_an_idle_connection_has_one_limit(fast: bool) -> None:
    app = api()
    assert (
        listener_config(app, fast_path=app.fast_path if fast else None, connections=Connections()).timeout_keep_alive
        == HEADERS_TIMEOUT_S
    )
