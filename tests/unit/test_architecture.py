"""The layer table as a test: who may import whom, and what a module may not become."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

ROOT = Path(__file__).resolve().parents[2] / "src" / "trainshed"

SHIPPED = (
    "node",
    "node/files",
    "node/crashpoints",
    "serving",
    "engines/ray/bridge",
)  # run where nothing else of Trainshed is
EVERYONE = {"errors", "domain", "node/files", "node/crashpoints", "__init__"}  # but for what is shipped

#: Who may import whom, by the longest matching path.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "domain": set(),
    "config": {"connections"},  # its reading of addresses
    "connections": set(),
    "background": set(),
    "state_lock": {"config"},
    "store": set(),
    "backup": {"background", "config", "node", "state_lock", "store"},  # of node: the one extractor
    "buckets": {"config"},
    "runtimes": {"config"},
    "search": set(),  # a process of its own, started by a module of engines
    "attempts": {"node", "serving"},  # the step parser; the readers of TFRecord and protocol buffers
    "artifacts": set(),
    "engines": {"background", "config", "node", "serving", "attempts", "artifacts"},
    "engines/hosts": {"background", "engines", "config", "node", "serving", "attempts", "artifacts"},
    "engines/local": {"background", "engines", "engines/hosts", "config", "node", "serving", "attempts", "artifacts"},
    "engines/ray": {
        *("background", "engines", "engines/hosts", "engines/local", "config", "node", "serving", "attempts"),
        "artifacts",
    },
    "engines/ray/bridge": set(),  # runs where Ray is, and knows the rest by a socket
    "gateway": {"background", "serving"},
    "services": {"background", "store", "buckets", "runtimes", "attempts", "artifacts", "gateway", "config"},
    "control": {
        *("store", "buckets", "runtimes", "engines", "attempts", "artifacts", "gateway", "config", "proxy"),
        "background",
        "node",  # its free ports, the names of the files in which trials report
    },
    "api": {"connections", "services", "gateway", "console"},
    "console": set(),  # files, and nothing that could know what they show
    "node": set(),
    "node/files": set(),  # atomic files, which every layer writes
    "node/crashpoints": set(),  # steps at which tests make a process fail, in every layer
    "serving": set(),
    "packaging": {"runtimes"},
    "client": {"config", "packaging", "proxy"},  # a trainer is packed before it is sent
    "sdk": {"client", "config", "packaging"},  # the Python client, with the dependencies of the command line
    "cli": {"backup", "client", "config", "local", "packaging", "proxy", "sample_files", "server", "shell"},
    "local": {"buckets", "config", "engines", "node", "runtimes"},  # on the user's own machine, without a server
    "shell": {"config", "proxy"},  # what the words of other programs mean here; the command line does it
    "certificates": set(),
    "sample_files": set(),
    "proxy": {"connections", "node"},  # its CONNECT tunnels, which the sidecar proxy on nodes has too
    "wiring": {
        *("services", "store", "buckets", "runtimes", "engines", "attempts", "artifacts", "gateway", "control"),
        *("config", "proxy", "sample_files"),
    },
    "server": {
        *("api", "wiring", "backup", "certificates", "config", "connections", "control", "node", "proxy", "services"),
        *("serving", "state_lock", "store"),
    },
    "testing": {  # small real things, put together from wherever they are
        *("api", "wiring", "buckets", "config", "control", "engines", "gateway", "node", "attempts", "artifacts"),
        *("certificates", "connections", "packaging", "proxy", "runtimes", "server", "services", "serving", "store"),
    },
}

#: Parts and modules that read the environment: there it is the interface, or it is passed on to a program.
ENVIRONMENT = {
    *("config", "node", "node/crashpoints", "engines/ray/bridge", "testing"),
    *("serving/container/container.py", "serving/loaders/mlflow.py"),
}

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


PACKAGES = sorted(path.parent for path in MODULES if path.name == "__init__.py")

#: Sub-packages that import no package beside them: what all of their siblings may rely on.
INDEPENDENT = ("api/http", "cli/toolkit", "node/process", "node/archives")

#: Route packages that import each other nowhere.
ROUTES = ("api/ml", "api/storage", "api/native", "api/console", "api/protocols", "api/discovery")

#: The sdk's classes mean the same things as the domain's, seen from outside, and are public.
PUBLIC_TWICE = {"Job", "Jobs", "Model", "Models", "Version", "Bucket", "Buckets", "Study", "Studies"}

MAX_MODULES = 16  #: in one package
MAX_LINES = 450  #: of one module


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def own_imports(path: Path) -> Iterator[tuple[str, ...]]:
    """The modules of the project that a file imports, each as the words of its path."""
    for name in imports(path):
        words = name.split(".")
        if words[0] == "trainshed" and len(words) > 1 and words[1] != "__version__":
            yield tuple(words[1:])


def below(words: tuple[str, ...], folder: str) -> bool:
    return words[: len(Path(folder).parts)] == Path(folder).parts


def test_imports_go_down() -> None:
    offenders = []
    for path in MODULES:
        here = part_of(path)
        if here == "__init__":  # leads to the Python client, when that is asked for
            continue
        allowed = MAY_IMPORT[here] | {here} | (set() if here in SHIPPED else EVERYONE)
        for words in own_imports(path):
            there = part(words)
            # A part with no rule of its own for its sub-folders is open as a whole.
            if not {there, there.partition("/")[0]} & allowed:
                offenders.append(f"{relative(path)} may not import {'.'.join(words)}")
    assert offenders == []


def test_shared_packages_import_none_beside_them() -> None:
    offenders = []
    for folder in INDEPENDENT:
        top = folder.partition("/")[0]
        for path in sorted((ROOT / folder).rglob("*.py")):
            siblings = [words for words in own_imports(path) if below(words, top) and not below(words, folder)]
            beside = [words for words in siblings if (ROOT / top / words[1]).is_dir()]
            offenders += [f"{relative(path)} imports {'/'.join(words)}" for words in beside]
    for path in sorted((ROOT / "node/remote").rglob("*.py")):
        words = [words for words in own_imports(path) if below(words, "node/supervisor")]
        offenders += [f"{relative(path)} imports {'/'.join(each)}" for each in words]
    for path in sorted((ROOT / "control/deployments").rglob("*.py")):
        words = [words for words in own_imports(path) if below(words, "control/jobs")]
        offenders += [f"{relative(path)} imports {'/'.join(each)}" for each in words]
    assert offenders == []


def test_routes_of_one_api_import_nothing_of_another() -> None:
    offenders = []
    for folder in ROUTES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            others = [
                words for words in own_imports(path) for other in ROUTES if other != folder and below(words, other)
            ]
            offenders += [f"{relative(path)} imports {'/'.join(words)}" for words in others]
    assert offenders == []


def test_ray_is_known_in_its_own_package_alone() -> None:
    importers = [relative(path) for path in MODULES if any(name.split(".")[0] == "ray" for name in imports(path))]
    assert [path for path in importers if not path.startswith("engines/ray/bridge/")] == []
    named = [relative(path) for path in MODULES if "ray" in path.stem.split("_")]
    assert [path for path in named if not path.startswith(("engines/ray/", "wiring/", "testing/clusters/"))] == []


def test_the_server_does_not_import_numpy() -> None:
    importers = [relative(path) for path in MODULES if any(name.split(".")[0] == "numpy" for name in imports(path))]
    assert [path for path in importers if not path.startswith(("search/", "serving/", "testing/"))] == []
    users = [relative(path) for path in MODULES if any(below(words, "search") for words in own_imports(path))]
    assert [path for path in users if not path.startswith("search/")] == []


UVICORN_ADAPTER = "api/uvicorn_adapter.py"


def uvicorn_internals() -> set[str]:
    """The attributes of uvicorn's server and configuration that are neither documented methods nor options."""
    config = uvicorn.Config(lambda scope: None, log_config=None, factory=False)
    config.load()
    subjects = (config, uvicorn.Server(config))
    names = {name for subject in subjects for name in dir(subject) if not name.startswith("__")}
    return names - {"run", "serve"} - set(inspect.signature(uvicorn.Config).parameters)


def uvicorn_uses(tree: ast.Module, internals: set[str]) -> Iterator[str]:
    """Yield what a module uses of uvicorn besides the class of its configuration.

    A class has attributes of its own, unless it is derived from a listener.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name.startswith("uvicorn."))
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] == "uvicorn":
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.Attribute(value=ast.Name(id="uvicorn"), attr=name):
                if name != "Config":
                    yield f"uvicorn.{name}"
            case ast.ClassDef(bases=bases):
                yield from (f"{node.name}({name})" for name in map(ast.unparse, bases) if name.endswith("Listener"))
            case ast.Attribute(value=value, attr=name) if name in internals and ast.unparse(value) != "self":
                yield name


def test_what_uvicorn_does_not_document_is_used_in_one_module() -> None:
    internals, found = uvicorn_internals(), {}
    for path in MODULES:
        known = {*imports(path)} & {"uvicorn", "trainshed.api.uvicorn_adapter"}
        if (known or any(name.startswith("uvicorn.") for name in imports(path))) and relative(path) != UVICORN_ADAPTER:
            found[relative(path)] = sorted(uvicorn_uses(ast.parse(path.read_text()), internals))
    users = ("api/listener.py", "api/shutdown.py", "server.py", "testing/processes/gateway.py")
    assert found == {path: [] for path in users}


@pytest.mark.parametrize(
    "code",
    [
        "from uvicorn.server import ServerState",
        "from uvicorn import Server",
        "import uvicorn.protocols.http.h11_impl",
        "class Own(uvicorn.Server): pass",
        "listener.should_exit = True",
        "config.load()",
        "listener.server_state.connections",
        "self.listener._serve()",
        "class Own(Listener): pass",
    ],
)
def test_a_use_of_what_uvicorn_does_not_document_is_found(code: str) -> None:
    assert list(uvicorn_uses(ast.parse(code), uvicorn_internals()))


def test_a_package_is_small_and_says_what_it_is_for() -> None:
    counts = {relative(folder): len(list(folder.glob("*.py"))) - 1 for folder in PACKAGES}
    assert {folder: count for folder, count in counts.items() if count > MAX_MODULES} == {}
    silent = [
        relative(folder)
        for folder in PACKAGES
        if not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    ]
    assert silent == []
    assert [relative(path.parent) for path in MODULES if not (path.parent / "__init__.py").exists()] == []


def test_a_public_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(relative(path))
    twice = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert {name: paths for name, paths in twice.items() if name not in PUBLIC_TWICE} == {}
    assert {name for name, paths in twice.items() if any(path.startswith("sdk/") for path in paths)} <= PUBLIC_TWICE


@pytest.mark.parametrize("page", ["architecture.md", "contributing.md"])
def test_every_file_that_the_docs_name_exists(page: str) -> None:
    text = (ROOT.parents[1] / "docs" / page).read_text()
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.(?:py|sh|md|sql|yml|toml))`", text))
    assert named, "no file is named any more: does the pattern still fit the page?"
    roots = (ROOT, ROOT.parents[1])
    assert sorted(name for name in named if not any((root / name).exists() for root in roots)) == []


def test_the_node_needs_nothing_but_python_and_psutil() -> None:
    allowed = sys.stdlib_module_names | {"psutil", "trainshed"}
    nodes = [path for path in MODULES if part_of(path) == "node"]
    assert [f"{relative(p)}: {name}" for p in nodes for name in imports(p) if name.split(".")[0] not in allowed] == []


def test_the_node_is_python_3_7() -> None:
    offenders = []
    for path in [path for path in MODULES if part_of(path) == "node"]:
        try:
            ast.parse(path.read_text(), feature_version=(3, 7))
        except SyntaxError as exc:
            offenders.append(f"{relative(path)}:{exc.lineno} {exc.msg}")
    assert offenders == []


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


def test_only_the_edges_read_the_environment() -> None:
    offenders = []
    for path in MODULES:
        if {part_of(path), relative(path)} & ENVIRONMENT:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
                offenders.append(f"{relative(path)}:{node.lineno}")
    assert offenders == []


def test_no_drawer_for_odds_and_ends() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [relative(path) for path in MODULES if drawers & set(path.with_suffix("").parts)] == []
    sizes = {relative(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {path: lines for path, lines in sizes.items() if lines > MAX_LINES} == {}


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
