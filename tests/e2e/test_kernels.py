"""Kernels of notebooks, one for each runtime, and the notebooks of a cloned repository run in them cell by cell."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.config import Home
from trainshed.local.kernels import kernel_environment
from trainshed.runtimes.catalogue import KERNELS, NOTEBOOK
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.processes.shells import Shell

REPOSITORY = "https://github.com/eL0ck/Cloud-Data-Science.git"
NAME = "IrisCategorisation-TensorFlow"
EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient
path, folder = sys.argv[1:]
notebook = nbformat.read(path, as_version=4)
try:
    NotebookClient(notebook, timeout=800, startup_timeout=800, resources={"metadata": {"path": folder}}).execute()
finally:
    nbformat.write(notebook, path)
"""
PIP = """
import os
import sys
import matplotlib, pandas, seaborn, sklearn, tensorflow
[shown] = !pip --version
assert os.path.realpath(sys.prefix) in os.path.realpath(shown.split()[3]), shown
print("versions", tensorflow.__version__, sklearn.__version__)
"""


class Lab:
    """A running JupyterLab, and a way to run notebooks as it does."""

    def __init__(self, shell: Shell) -> None:
        shell("notebook", "--no-browser", "--dir", shell.folder / "work")
        home = shell.server.home
        self.shell = shell
        self.state = home / "notebook"
        pid = json.loads((self.state / "server.json").read_text())["pid"]
        environ = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        self.env = dict(pair.split("=", 1) for pair in environ if "=" in pair)
        self._python = home / "runtimes" / NOTEBOOK.key / "bin" / "python"

    def execute(self, path: Path) -> str:
        """Run all cells of a notebook in its folder. None may fail. Returns what they printed."""
        command = [str(word) for word in (self._python, "-c", EXECUTE, path, path.parent)]
        done = subprocess.run(command, env=self.env, cwd=path.parent, capture_output=True, text=True, timeout=1500)
        assert done.returncode == 0, done.stderr[-4000:]
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        outputs = [output for cell in cells for output in cell["outputs"]]
        return "".join("".join(output.get("text", ())) for output in outputs)

    def run_code(self, runtime: str, source: str) -> str:
        """Run one cell in the kernel of a runtime. Returns what it printed."""
        cell: dict[str, Any] = {
            "cell_type": "code",
            "id": "one",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
        }
        kernel = {"display_name": runtime, "language": "python", "name": f"trainshed-{runtime}"}
        body: dict[str, Any] = {"cells": [{**cell, "source": source}], "metadata": {"kernelspec": kernel}}
        path = self.shell.folder / f"{runtime}.ipynb"
        path.write_text(json.dumps({**body, "nbformat": 4, "nbformat_minor": 5}))
        return self.execute(path)


@pytest.fixture(scope="module")
def lab(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    shell = Shell(framework_server, tmp_path_factory.mktemp("kernels"), "kernels-project")
    yield Lab(shell)
    shell("notebook", "--stop")


def test_the_launcher_has_a_kernel_for_each_runtime(lab: Lab) -> None:
    specs = {path.parent.name: json.loads(path.read_text()) for path in lab.state.glob("data/kernels/*/kernel.json")}
    assert {"trainshed-2.21", "trainshed-2.15", "trainshed-torch", "trainshed-jax"} <= set(specs)
    assert specs["trainshed-2.21"]["display_name"] == "TensorFlow 2.21 (Python 3.11)"
    assert specs["trainshed-2.21"]["argv"][-2:] == ["2.21", "{connection_file}"]


def test_pip_is_that_of_the_kernel(lab: Lab) -> None:
    """The kernel's programs come after the shims of gcloud and gsutil, and before all others."""
    home = lab.shell.server.home
    kernel = home / "runtimes" / KERNELS["2.21"].key / "bin" / "python"
    folders = kernel_environment(lab.env, kernel, Home(home))["PATH"].split(":")
    assert folders[:2] == [str(home / "notebook" / "bin"), str(kernel.parent)]
    assert str(home / "runtimes" / NOTEBOOK.key / "bin") not in folders
    assert "pip" in [name.partition("==")[0] for name in NOTEBOOK.pins], "or `!pip` would be the server's"


@pytest.mark.soak  # builds environments and imports TensorFlow; the tests above cover what starts a kernel
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("runtime", ["2.21", "2.15", "1.15"])
def test_kernels_have_what_notebooks_import(lab: Lab, runtime: str) -> None:
    assert f"versions {runtime}" in lab.run_code(runtime, PIP)


@pytest.mark.soak  # as above
@pytest.mark.timeout(1800)
def test_all_cells_of_the_cloned_notebooks_run(lab: Lab) -> None:
    lab.shell("shell", "--runtime-version", "none", "-c", f"git clone {REPOSITORY}")
    root = lab.shell.folder / "Cloud-Data-Science" / "Platform-Comparison"
    explored = lab.execute(root / f"{NAME}.ipynb")
    assert "120,4,setosa,versicolor,virginica" in explored
    assert float(explored.rpartition("Accuracy: ")[2].split()[0]) > 0.8
    on_engine = lab.execute(root / "ML-Engine" / f"{NAME}-MLE.ipynb")
    assert "CLASS_IDS" in on_engine
    assert '"predictions"' in on_engine
