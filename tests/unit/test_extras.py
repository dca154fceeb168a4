"""psycopg is an extra: SQLite works without it, and a PostgreSQL URL without it is refused with the remedy."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture
def bare_python(tmp_path: Path) -> dict[str, str]:
    """The environment of an interpreter that has all installed packages except psycopg."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if not installed.name.startswith(("psycopg", "__pycache__")) and installed.suffix != ".pth":
            (packages / installed.name).symlink_to(installed)
    return {**os.environ, "PYTHONPATH": f"{SRC}{os.pathsep}{packages}", "TRAINSHED_HOME": str(tmp_path / "home")}


def run(bare_python: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", *arguments]  # -S leaves out the environment's own packages
    return subprocess.run(command, env=bare_python, capture_output=True, text=True, timeout=280)


def test_sqlite_needs_no_psycopg(bare_python: dict[str, str], tmp_path: Path) -> None:
    program = (
        "import pathlib, sys\n"
        "import trainshed.server\n"
        "from trainshed.store.database import Database\n"
        "database = Database(pathlib.Path(sys.argv[1]))\n"
        "database.migrate()\n"
        "database.close()\n"
    )
    done = run(bare_python, "-c", program, str(tmp_path / "state.db"))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_server_on_postgresql_without_psycopg_is_refused_with_the_remedy(bare_python: dict[str, str]) -> None:
    bare_python["TRAINSHED_SERVER_DATABASE"] = "postgresql://nobody@127.0.0.1:1/none"
    done = run(bare_python, "-m", "trainshed.cli", "serve", "--port", "0", "--tls-port", "0")
    assert done.returncode == 1
    assert "No module named 'psycopg'" in done.stderr
    assert done.stderr.rstrip().endswith("Install it with: pip install 'trainshed[postgresql]'")
