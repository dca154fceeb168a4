"""The sample notebooks, executed in JupyterLab's own environment against a real server, cell by cell."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from trainshed.runtimes.catalogue import NOTEBOOK
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.processes.shells import Shell

STEPS = {"TRAIN_STEPS": "200", "SCALE_TIER": "BASIC", "TRIALS": "3"}

EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient
path = sys.argv[1]
notebook = nbformat.read(path, as_version=4)
try:
    NotebookClient(notebook, timeout=800, resources={"metadata": {"path": sys.argv[2]}}).execute()
finally:
    nbformat.write(notebook, path)
"""


class Notebooks:
    """The folder of a running JupyterLab, and a way to run its notebooks from top to bottom."""

    def __init__(self, shell: Shell, folder: Path) -> None:
        self.folder = folder
        self.shell = shell
        self.url = shell("notebook", "--no-browser", "--dir", folder)[0].strip()
        home = shell.server.home
        pid = json.loads((home / "notebook" / "server.json").read_text())["pid"]
        environ = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        self._env = dict(pair.split("=", 1) for pair in environ if "=" in pair)
        self._python = home / "runtimes" / NOTEBOOK.key / "bin" / "python"

    def execute(self, name: str) -> list[dict[str, Any]]:
        """Run all of it in the environment that JupyterLab has; the code cells with their outputs. None may fail."""
        path = self.folder / f"{name}.ipynb"
        command = [str(word) for word in (self._python, "-c", EXECUTE, path, self.folder)]
        done = subprocess.run(command, env=self._env, cwd=self.folder, capture_output=True, text=True, timeout=1200)
        assert done.returncode == 0, done.stderr[-4000:]
        return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def shown(cell: dict[str, Any], kind: str) -> str:
    """All that a cell shows in one form: `text/html`, `text/plain`, or `stream` for what it printed."""
    if kind == "stream":
        return "".join("".join(each["text"]) for each in cell["outputs"] if each["output_type"] == "stream")
    return "".join("".join(each.get("data", {}).get(kind, "")) for each in cell["outputs"])


def only(cells: list[dict[str, Any]], words: str) -> dict[str, Any]:
    """The cell whose source holds these words."""
    [found] = [cell for cell in cells if words in "".join(cell["source"])]
    return found


@pytest.fixture(scope="module")
def notebooks(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebooks]:
    shell = Shell(framework_server, tmp_path_factory.mktemp("notebooks"), "notebook-samples")
    shell.env |= STEPS
    yield Notebooks(shell, shell.folder / "work")
    shell("notebook", "--stop")


@pytest.fixture(scope="module")
def trained(notebooks: Notebooks) -> list[dict[str, Any]]:
    """The cells of `Train and deploy MNIST`, executed: the model MNIST is there from then on."""
    return notebooks.execute("Train and deploy MNIST")


@pytest.mark.soak  # the other notebook trains, deploys and asks too
@pytest.mark.timeout(1500)
def test_mnist_is_trained_deployed_and_asked(trained: list[dict[str, Any]]) -> None:
    watched = shown(only(trained, "job.watch()"), "text/html")
    assert "SUCCEEDED" in watched
    assert "master-replica-0" in watched
    assert watched.count("trainshed-job") == 1, "the live view is one output, and its last picture stays"
    assert "polyline" in shown(only(trained, "job.metrics()"), "text/html")
    assert "Final metrics" in shown(only(trained, "Final metrics"), "stream")
    assert "READY" in shown(only(trained, "models.deploy"), "text/html")
    asked = only(trained, "t10k-images")
    assert "image/png" in asked["outputs"][-1]["data"]
    bars = shown(next(cell for cell in trained if "".join(cell["source"]).strip() == "predictions"), "text/html")
    assert bars.count('class="trainshed-bar"') == 50
    assert "<b>7</b>" in bars


@pytest.mark.soak  # tests/browser/test_notebook.py runs the same notebook in JupyterLab
@pytest.mark.timeout(1500)
def test_a_drawn_digit_is_recognised(notebooks: Notebooks, trained: list[dict[str, Any]]) -> None:
    cells = notebooks.execute("Online prediction example")
    assert "application/vnd.jupyter.widget-view+json" in only(cells, "pad = DrawingPad()")["outputs"][0]["data"]
    assert shown(only(cells, "It is a"), "stream") == "It is a 3\n"
    assert "image/png" in only(cells, "right.bar")["outputs"][-1]["data"]
    assert shown(only(cells, "googleapiclient"), "text/plain") == "3"


@pytest.mark.timeout(900)
def test_iris_goes_from_its_data_to_predictions(notebooks: Notebooks) -> None:
    cells = notebooks.execute("Iris end to end")
    assert "count" in shown(only(cells, "pd.read_csv"), "text/plain")
    assert "SUCCEEDED" in shown(only(cells, "job.watch()"), "text/html")
    assert "metric" in shown(only(cells, ".frame()"), "text/plain")
    answers = shown(only(cells, "model.predict"), "text/html")
    assert answers.count("setosa") >= 3


@pytest.mark.soak  # test_sample_digits.py, test_tuning.py and tests/wire/test_studies.py go the same way
@pytest.mark.timeout(900)
def test_a_search_runs_in_jobs_and_in_a_study(notebooks: Notebooks) -> None:
    cells = notebooks.execute("Search for hyperparameters")
    watched = shown(only(cells, "ty.jobs.tune("), "text/html")
    assert "3 of 3 trials ended, best accuracy" in watched
    assert watched.count("trainshed-search") == 1, "the live view is one output, and its last picture stays"
    assert "learning_rate" in shown(only(cells, "job.trials.frame()"), "text/plain")
    resumed = only(cells, "job.resume(")
    assert "2 of 2 trials ended" in shown(resumed, "text/html")
    assert "JobTrial(number=" in shown(resumed, "text/plain")
    assert "raw=" not in shown(resumed, "text/plain"), "a cell that ends with a trial shows no list of measurements"
    assert "[" in shown(only(cells, "model.predict"), "text/plain")
    run = only(cells, "study.run(")
    assert len([each for each in run["outputs"] if each["output_type"] == "display_data"]) == 1
    assert "3 of 3 trials: trial 3 loss" in shown(run, "text/html")
    assert "AskedTrial(number=" in shown(only(cells, "study.best"), "text/plain")


def test_it_stops(notebooks: Notebooks) -> None:
    address = urlsplit(notebooks.url)
    socket.create_connection((address.hostname, address.port)).close()
    assert notebooks.shell("notebook", "--stop")[1] == "The notebook has stopped.\n"
    assert "notebook" not in json.loads(notebooks.shell("status", "--format", "json")[0])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port))
    assert notebooks.shell("notebook", "--stop")[1] == "No notebook is running.\n"
