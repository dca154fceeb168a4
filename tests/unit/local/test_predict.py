"""local predict without a runtime: what a `python` that follows a script answers, and what is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainshed.config import Home
from trainshed.errors import FailedPreconditionError, InvalidArgumentError, TrainshedError
from trainshed.local.predict import LocalModelError, candidates, model_folder, run_request


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path / "home")
    found.create()
    return found


def runtime(folder: Path, script: str) -> Path:
    """A program in the place of a runtime's Python. Its third argument is the spec."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return python


def ask(home: Home, script: str, body: dict[str, Any] | None = None) -> tuple[bool, Any]:
    return run_request(runtime(home.path, script), home, home.path / "model", "tensorflow", body or {"instances": [1]})


def test_the_request_goes_in_and_the_answer_comes_out(home: Home) -> None:
    assert ask(home, "cat", {"instances": [[1.5, "ü"]]}) == (True, {"instances": [[1.5, "ü"]]})


def test_the_serving_code_is_told_what_to_load(home: Home) -> None:
    well, told = ask(home, 'test "$2" = predict && cat "$3"')
    assert well
    assert told == {"format": 1, "model_dir": str(home.path / "model"), "loader": "tensorflow"}


def test_a_refusal_is_an_answer_too(home: Home) -> None:
    assert ask(home, """echo '{"error": {"message": "No."}}'; exit 1""") == (False, {"error": {"message": "No."}})


def test_a_model_that_can_t_be_loaded_says_so_in_its_last_line(home: Home) -> None:
    with pytest.raises(LocalModelError, match=r"^Failed to load model: no file \(Error code: 0\)$"):
        ask(home, "echo noise >&2; echo 'Failed to load model: no file (Error code: 0)' >&2; exit 1")


@pytest.mark.parametrize(
    ("script", "ended"), [("kill -SEGV $$", "signal 11"), ("echo last >&2; exit 3", "exit status 3")]
)
def test_a_crash_is_told_with_its_last_lines(home: Home, script: str, ended: str) -> None:
    with pytest.raises(TrainshedError, match=f"ended with {ended}"):
        ask(home, script)


@pytest.mark.parametrize(
    ("files", "framework", "loaders"),
    [
        (("saved_model.pb", "variables/variables.index"), None, ("openvino", "tensorflow")),
        (("model.keras",), "tensorflow", ("keras",)),
        (("model.joblib",), "scikit-learn", ("sklearn",)),
        (("model.bst",), None, ("xgboost",)),
    ],
)
def test_the_loaders_are_those_that_a_server_would_try(
    tmp_path: Path, files: tuple[str, ...], framework: str | None, loaders: tuple[str, ...]
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert candidates(tmp_path, framework) == loaders


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(FailedPreconditionError, match=str(tmp_path)):
        candidates(tmp_path, None)


def test_the_model_may_be_in_a_bucket_of_this_machine(home: Home, tmp_path: Path) -> None:
    (home.buckets / "bucket" / "export").mkdir(parents=True)
    assert model_folder(home, "gs://bucket/export/") == home.buckets / "bucket" / "export"
    assert model_folder(home, str(tmp_path)) == tmp_path
    with pytest.raises(InvalidArgumentError, match="is not a folder"):
        model_folder(home, "gs://bucket/nothing")
