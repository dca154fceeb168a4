"""The node runs where nothing else of Trainshed is, on Pythons from 3.7 on."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import trainshed.node
from trainshed.engines.shipping import ship

SOURCES = sorted(Path(trainshed.node.__path__[0]).rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_it_is_python_3_7(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 7))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom | ast.Import)]
    for node in imports:
        if isinstance(node, ast.ImportFrom):
            assert node.level or (node.module or "").partition(".")[0] in sys.stdlib_module_names
        else:
            assert all(alias.name.partition(".")[0] in sys.stdlib_module_names for alias in node.names)
    if any(isinstance(node, ast.FunctionDef) for node in ast.walk(tree)):
        futures = [node for node in imports if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
        assert [alias.name for node in futures for alias in node.names] == ["annotations"]


def test_it_is_shipped_once_and_starts_by_itself(tmp_path: Path) -> None:
    folder = ship(tmp_path / "node")
    assert ship(tmp_path / "node") == folder
    assert list((tmp_path / "node").iterdir()) == [folder]
    done = subprocess.run([sys.executable, "-I", "-S", folder / "run.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage:")


def test_code_is_compiled_anew_after_a_boot(tmp_path: Path) -> None:
    folder = ship(tmp_path / "node")
    command = [sys.executable, "-I", "-S", str(folder / "run.py")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2
    compiled = sorted(folder.rglob("__pycache__/*.pyc"))
    for path in compiled:  # as a power cut leaves a file: its first sectors and its size
        path.write_bytes(path.read_bytes()[:16].ljust(path.stat().st_size, b"\0"))
    assert ship(tmp_path / "node") == folder
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1  # Python believes the header
    (folder / ".boot").write_text("another")
    assert ship(tmp_path / "node") == folder
    assert compiled and not any(path.exists() for path in compiled)
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2


def test_the_supervisor_starts_without_what_it_does_not_need(tmp_path: Path) -> None:
    folder = ship(tmp_path / "node")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import trainshed_node.main, trainshed_node.supervisor.supervisor\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, folder], capture_output=True, text=True, check=True)
    heavy = {"typing", "dataclasses", "subprocess", "tarfile", "zipfile", "shutil", "ctypes", "psutil", "pathlib"}
    assert not heavy & set(done.stdout.split())
