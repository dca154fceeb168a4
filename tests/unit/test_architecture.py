"""The layer table as a test: who may import whom, and what a module may not become."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "src" / "trainshed"

SHIPPED = ("node", "serving", "engines/ray/bridge")  # run where nothing else of Trainshed is
EVERYONE = {"errors", "domain", "__init__"}  # but for what is shipped

#: Who may import whom, by the longest matching path.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "domain": set(),
    "config": set(),
    "store": set(),
    "buckets": {"config"},
    "runtimes": {"config"},
    "attempts": {"node"},  # the step parser
    "artifacts": set(),
    "engines": {"config", "node", "serving", "attempts", "artifacts"},
    "engines/hosts": {"engines", "config", "node", "serving", "attempts", "artifacts"},
    "engines/local": {"engines", "engines/hosts", "config", "node", "serving", "attempts", "artifacts"},
    "engines/ray": {"engines", "engines/hosts", "engines/local", "config", "node", "serving", "attempts", "artifacts"},
    "engines/ray/bridge": set(),  # runs where Ray is, and knows the rest by a socket
    "gateway": {"serving"},
    "services": {"store", "buckets", "runtimes", "engines", "attempts", "artifacts", "gateway", "config"},
    "control": {
        *("store", "buckets", "runtimes", "engines", "attempts", "artifacts", "gateway", "config", "proxy"),
    },
    "api": {"services", "gateway", "console"},
    "console": set(),  # files, and nothing that could know what they show
    "node": set(),
    "serving": set(),
    "packaging": {"runtimes"},
    "client": {"config", "packaging", "proxy"},  # a trainer is packed before it is sent
    "sdk": {"client", "config", "packaging"},  # the Python client, on the same ground as the command line
    "cli": {"client", "config", "local", "packaging", "proxy", "server", "shell"},
    "local": {"buckets", "config", "engines", "node", "runtimes"},  # on the user's own machine, without a server
    "shell": {"config", "proxy"},  # what the words of other programs mean here; the command line does it
    "certificates": set(),
    "proxy": set(),
    "wiring": {
        *("services", "store", "buckets", "runtimes", "engines", "attempts", "artifacts", "gateway", "control"),
        *("config", "proxy"),
    },
    "server": {"api", "wiring", "certificates", "config", "control", "proxy", "services", "serving", "store"},
    "testing": {  # small real things, put together from wherever they are
        *("api", "wiring", "buckets", "config", "control", "engines", "gateway", "node", "attempts", "artifacts"),
        *("packaging", "proxy", "runtimes", "server", "services", "serving", "store"),
    },
}

#: Parts and modules that read the environment: there it is the interface, or it is passed on to a program.
ENVIRONMENT = {"config", "node", "engines/ray/bridge", "testing", "serving/container/container.py"}

MODULES = sorted(ROOT.rglob("*.py"))


def part(words: tuple[str, ...]) -> str:
    """The part of the table that a module belongs to: the longest one that its path begins with."""
    prefixes = ("/".join(words[:length]) for length in range(len(words), 0, -1))
    return next((prefix for prefix in prefixes if prefix in MAY_IMPORT), words[0])


def part_of(path: Path) -> str:
    return part(path.relative_to(ROOT).with_suffix("").parts)


def imports(path: Path) -> Iterator[str]:
    """The full names of the modules that a file imports, wherever in it."""
    package = ["trainshed", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield stem
            yield from (f"{stem}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(path: Path) -> None:
    here = part_of(path)
    if here == "__init__":  # leads to the Python client, when that is asked for
        return
    allowed = MAY_IMPORT[here] | {here} | (set() if here in SHIPPED else EVERYONE)
    for name in imports(path):
        words = name.split(".")
        if words[0] == "trainshed" and len(words) > 1 and words[1] != "__version__":
            there = part(tuple(words[1:]))
            # A part with no rule of its own for its sub-folders is open as a whole.
            assert {there, there.partition("/")[0]} & allowed, f"{here} may not import {name}"


@pytest.mark.parametrize("path", [p for p in MODULES if part_of(p) == "node"], ids=lambda p: p.name)
def test_the_node_needs_nothing_but_python_and_psutil(path: Path) -> None:
    for name in imports(path):
        top = name.split(".")[0]
        assert top in sys.stdlib_module_names | {"psutil", "trainshed"}, name


@pytest.mark.parametrize("path", [p for p in MODULES if part_of(p) == "node"], ids=lambda p: p.name)
def test_the_node_is_python_3_7(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 7))


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {_module(path): {n for n in imports(path) if n.startswith("trainshed.")} for path in MODULES}
    for start in graph:
        seen: set[str] = set()
        waiting = [name for name in graph[start] if name in graph]
        while waiting:
            name = waiting.pop()
            assert name != start, f"{start} is in an import cycle"
            if name not in seen:
                seen.add(name)
                waiting.extend(n for n in graph[name] if n in graph)


def _module(path: Path) -> str:
    words = ["trainshed", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_the_edges_read_the_environment(path: Path) -> None:
    if {part_of(path), path.relative_to(ROOT).as_posix()} & ENVIRONMENT:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        assert not (isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")), f"{path}:{node.lineno}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_drawer_for_odds_and_ends(path: Path) -> None:
    assert not {"utils", "util", "helpers", "helper", "common", "misc"} & set(path.with_suffix("").parts)
    assert len(path.read_text().splitlines()) <= 450


def test_a_server_loads_nothing_of_clouds_that_it_has_no_bucket_in() -> None:
    names = ("fsspec", "s3fs", "gcsfs", "botocore", "aiobotocore", "aiohttp")
    code = f"import sys, trainshed.server; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"


def test_no_link_is_tracked() -> None:
    """A link such as `.cache` is of one checkout. Merged into another, it takes the place of the folder there."""
    root = ROOT.parents[1]
    if not (root / ".git").exists():
        pytest.skip("this is not a checkout")
    tracked = subprocess.run(["git", "ls-files", "--stage"], cwd=root, capture_output=True, text=True, check=True)
    links = [line.partition("\t")[2] for line in tracked.stdout.splitlines() if line.startswith("120000")]
    assert links == [], f"take them out with: git rm --cached {' '.join(links)}"
