"""docs/compatibility.md against the code, the discovery document of Google's client and, where it is, gcloud."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import pytest

from trainshed.api.app import ROUTES
from trainshed.api.http.routing import Router
from trainshed.cli.commands import main

PAGE = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text()
METHODS, _, _, _, FLAGS = (part.splitlines() for part in PAGE.split("\n## ")[1:])
GCLOUD = Path("/usr/lib/google-cloud-sdk/data/cli/gcloud_completions.py")


def rows(lines: list[str]) -> list[list[str]]:
    """The cells of a table, without the marks of code."""
    found = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return found[2:]


def methods(resource: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from methods(inner)


def test_the_methods_are_those_of_the_client_and_say_what_the_server_does() -> None:
    document = json.loads((files("googleapiclient") / "discovery_cache" / "documents" / "ml.v1.json").read_text())
    router = Router(ROUTES)
    known: dict[str, str] = {}
    for method in methods(document):
        path = re.sub(r"\{\w+\}", "x", method["flatPath"])
        route, _, _ = router.find(method["httpMethod"], f"/{path}".encode())
        assert route is not None, method["id"]
        known[method["id"].removeprefix("ml.")] = "served"
    assert {row[0]: row[1] for row in rows(METHODS)} == known


def command_of(words: str) -> click.Command:
    command: click.Command = main
    for word in words.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None, f"there is no `trainshed {words}`"
        command = found
    return command


@pytest.mark.parametrize("row", rows(FLAGS), ids=lambda row: f"{row[0]} {row[1]}")
def test_a_flag_is_there_unless_it_is_refused(row: list[str]) -> None:
    words, flag, standing, why = row
    assert standing in ("served", "no effect", "refused")
    options = {name for param in command_of(words).params for name in (*param.opts, *param.secondary_opts)}
    if standing == "refused":
        assert why, "a refusal has a reason"
        assert (flag in options) == ("by the server" in why)
    elif flag:
        assert flag in options


@pytest.mark.skipif(not GCLOUD.is_file(), reason="gcloud is not installed")
def test_the_flags_are_those_of_gcloud() -> None:
    spec = importlib.util.spec_from_file_location("gcloud_completions", GCLOUD)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tree = module.STATIC_COMPLETION_CLI_TREE["commands"]
    known: set[tuple[str, str]] = set()
    for commands in (tree["ai-platform"]["commands"], tree["beta"]["commands"]["ai-platform"]["commands"]):
        known |= set(flags_of(commands, ""))
    assert {(row[0], row[1]) for row in rows(FLAGS)} == known


def flags_of(commands: Mapping[str, Any], before: str) -> Iterator[tuple[str, str]]:
    for name, command in commands.items():
        words = f"{before} {name}".strip()
        if command.get("commands"):
            yield from flags_of(command["commands"], words)
        else:
            yield from ((words, flag) for flag in command.get("flags") or ("",))
