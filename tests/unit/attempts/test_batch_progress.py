"""How far a batch prediction is, from a file that its model may have tampered with."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainshed.attempts.batch_progress import PREDICTION_FOLDER, BatchProgress, read_batch_progress

TOLD = {"predictions": 3, "errors": 1, "read": 50, "bytes": 200}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / PREDICTION_FOLDER).mkdir()
    return tmp_path / PREDICTION_FOLDER / "progress.json"


def test_what_was_told(tmp_path: Path, file: Path) -> None:
    assert read_batch_progress(tmp_path) is None
    file.write_text(json.dumps(TOLD))
    found = read_batch_progress(tmp_path)
    assert found == BatchProgress(**TOLD)
    assert found.fraction == 0.25


def _link(file: Path) -> None:
    (file.parent / "elsewhere").write_text(json.dumps(TOLD))
    file.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "tamper",
    [
        _link,
        Path.mkdir,
        os.mkfifo,
        lambda file: file.write_bytes(b"no json"),
        lambda file: file.write_bytes(b"[]"),
        lambda file: file.write_bytes(b" " * 5000),
        lambda file: file.write_text(json.dumps(TOLD | {"read": -1})),
        lambda file: file.write_text(json.dumps(TOLD | {"errors": "1"})),
        lambda file: file.parent.rmdir(),
        lambda file: (file.parent.rmdir(), file.parent.write_text("")),
    ],
)
def test_whatever_is_there_nothing_fails(tmp_path: Path, file: Path, tamper: Callable[[Path], object]) -> None:
    tamper(file)
    assert read_batch_progress(tmp_path) is None
