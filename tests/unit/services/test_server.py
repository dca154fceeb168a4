"""The settings in force, with their sources and without secrets."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from trainshed.config import Settings
from trainshed.services.server import EffectiveSettings, masked


def shown(settings: Settings, env: dict[str, str], file: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    body = EffectiveSettings(settings, settings.sources(env, file)).body()
    return {each["name"]: (each["value"], each["source"]) for each in body["settings"]}


def test_every_setting_is_told_with_its_source() -> None:
    env = {"TRAINSHED_SERVER_PORT": "9000", "TRAINSHED_SERVER_SLOTS": "3", "HOME": "/root"}
    file = {"slots": 5, "poll_s": 0.5, "authentication": False}
    settings = replace(Settings.read(env, file), tls_port=0, port=9001)
    told = shown(settings, env, file)
    assert list(told) == [setting.name for setting in fields(Settings)]
    assert told["port"] == (9001, "command line"), "it is not what the environment says"
    assert told["tls_port"] == (0, "command line")
    assert told["slots"] == (3, "environment")
    assert told["poll_s"] == (0.5, "file")
    assert told["authentication"] == (False, "file")
    assert told["host"] == ("127.0.0.1", "default")


def test_defaults_and_descriptions_are_told() -> None:
    settings = Settings()
    [port] = [
        each
        for each in EffectiveSettings(settings, settings.sources({}, {})).body()["settings"]
        if each["name"] == "port"
    ]
    assert port == {
        "name": "port",
        "value": 8470,
        "default": 8470,
        "source": "default",
        "description": "Port for HTTP. 0 picks a free one.",
    }


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("postgresql://me:secret@db:5432/shed", "postgresql://me:***@db:5432/shed"),
        ("postgresql://me:s%40c:r@db/shed?sslmode=require", "postgresql://me:***@db/shed?sslmode=require"),
        ("postgresql://me@db/shed", "postgresql://me@db/shed"),
        ("postgresql:///shed?host=/run/pg&password=secret", "postgresql:///shed?host=/run/pg&password=***"),
        ("postgresql://me:se/c@secret@db/shed", "postgresql://me:***@db/shed"),
        ("postgresql://db/shed?sslpassword=secret&a=b", "postgresql://db/shed?sslpassword=***&a=b"),
        ("127.0.0.1", "127.0.0.1"),
        ("", ""),
        (5, 5),
    ],
)
def test_no_password_is_told(url: Any, safe: Any) -> None:
    assert masked(url) == safe
    assert "secret" not in str(masked(url))
