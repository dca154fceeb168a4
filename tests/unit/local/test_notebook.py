"""The notebook without Jupyter: ports, sample notebooks, whether it runs, and what a drawing becomes."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

import trainshed
from trainshed.config import Home
from trainshed.errors import CannotProceedError
from trainshed.local import notebook
from trainshed.runtimes.catalogue import CATALOGUE, NOTEBOOK
from trainshed.sdk.drawing import SIDE, THREE, raster

SAMPLES = Path(__file__).parents[3] / "samples" / "notebooks"


def test_samples_are_copied_once_and_never_over_what_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "Iris end to end.ipynb").write_text("my own")
    assert notebook.copy_samples(SAMPLES, folder) == [
        "Online prediction example.ipynb",
        "Search for hyperparameters.ipynb",
        "Train and deploy MNIST.ipynb",
    ]
    assert (folder / "Iris end to end.ipynb").read_text() == "my own"
    assert notebook.copy_samples(SAMPLES, folder) == []
    (folder / "Train and deploy MNIST.ipynb").unlink()
    (folder / "Train and deploy MNIST.ipynb").symlink_to(tmp_path / "elsewhere")
    assert notebook.copy_samples(SAMPLES, folder) == []
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "file").touch()
    with pytest.raises(CannotProceedError, match="--dir"):
        notebook.copy_samples(SAMPLES, tmp_path / "file" / "below")


def test_it_runs_only_while_the_lock_is_held(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert notebook.running(home) is None
    home.notebook.mkdir()
    (home.notebook / "lock").touch()
    said = {"url": "http://127.0.0.1:8888/lab?token=secret", "pid": 1, "folder": "/w"}
    (home.notebook / "server.json").write_text(json.dumps(said))
    assert notebook.running(home) is None
    assert notebook.stop(home) is False
    with open(home.notebook / "lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = notebook.running(home)
        assert found is not None
        assert found.address == "http://127.0.0.1:8888/lab"
        with pytest.raises(CannotProceedError, match="being started"), notebook._locked(home.notebook / "lock"):
            pass


def test_its_environment_has_this_very_trainshed_and_none_of_the_users_own_jupyter(tmp_path: Path) -> None:
    env = notebook.environment(tmp_path, {"JUPYTER_TOKEN": "theirs", "VIRTUAL_ENV": "/v", "HOME": "/h"})
    assert (Path(env["PYTHONPATH"]) / "trainshed").resolve() == Path(trainshed.__file__).parent.resolve()
    assert "JUPYTER_TOKEN" not in env
    assert "VIRTUAL_ENV" not in env
    assert env["HOME"] == "/h"
    assert notebook.environment(tmp_path, {}) == {k: v for k, v in env.items() if k != "HOME"}


def test_no_job_can_ask_for_the_notebooks_environment() -> None:
    assert NOTEBOOK.name not in CATALOGUE
    assert {pin.partition("==")[0] for pin in NOTEBOOK.pins} >= {
        "jupyterlab",
        "anywidget",
        "ipykernel",
        "google-crc32c",
    }


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_sample_notebooks_hold_no_outputs(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
    assert cells[0]["cell_type"] == "markdown"


def rows(pixels: list[float]) -> list[list[float]]:
    return [pixels[at : at + SIDE] for at in range(0, SIDE * SIDE, SIDE)]


def test_a_drawing_is_fitted_and_centred_as_mnist_is() -> None:
    small = [[(0.8 + 0.1 * x, 0.1 * y) for x, y in stroke] for stroke in THREE]  # in a corner
    assert raster(small) == pytest.approx(raster(THREE), abs=0.02)
    image = rows(raster(THREE))
    mass = sum(map(sum, image))
    middle = sum((at + 0.5) * sum(row) for at, row in enumerate(image)) / mass
    assert abs(middle - SIDE / 2) <= 0.5
    assert max(map(max, image)) == 1.0
    assert not any(image[0]) and not any(image[-1])


def test_a_dot_and_an_empty_pad_are_images_too() -> None:
    assert raster([]) == [0.0] * 784
    dot = raster([[(0.5, 0.5)]])
    assert 4 < sum(dot) < 20
    assert dot[13 * SIDE + 13] == 1.0
