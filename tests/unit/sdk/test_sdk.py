"""The Python client without a server: what it promises, what it shows, and that users' texts can do no harm."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from typing import Any

import pytest

import trainshed
from trainshed import sdk
from trainshed.client.transport import Client
from trainshed.errors import CannotProceedError, InvalidArgumentError, NotFoundError, TrainshedError
from trainshed.sdk import display, models
from trainshed.sdk.jobs import Jobs, _arguments, _new_name
from trainshed.sdk.predictions import Predictions, vector
from trainshed.sdk.records import LogLine, Metrics, Progress

EVIL = '<img src=x onerror="alert(1)">&\'"'

PROGRESS = {
    "step": 1204,
    "totalSteps": 5000,
    "epoch": None,
    "totalEpochs": None,
    "fraction": 0.24,
    "loss": "NaN",
    "accuracy": 0.94,
    "globalStepsPerSecond": 31.0,
    "leftSeconds": 120.0,
    "ageSeconds": 1.0,
    "evaluation": {"step": 1000, "loss": 0.04, "accuracy": 0.987},
}


def public() -> list[tuple[str, Any]]:
    """Every public name of the client, and the members of its classes."""
    found: list[tuple[str, Any]] = [("trainshed", trainshed), ("connect", trainshed.connect)]
    for name in sdk.__all__:
        thing = getattr(sdk, name)
        found.append((name, thing))
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_") and (callable(value) or isinstance(value, property | classmethod)):
                    found.append((f"{name}.{member}", value))
    return found


@pytest.mark.parametrize("name, thing", public(), ids=[name for name, _ in public()])
def test_every_public_name_says_what_it_is_for(name: str, thing: Any) -> None:
    text = inspect.getdoc(thing)
    assert text, f"{name} has no docstring"
    assert not text.startswith(f"{name}("), f"{name} has none but the one that Python made"


def test_the_package_is_cheap_to_import_until_the_client_is_asked_for() -> None:
    program = "import sys, trainshed; print([m for m in sys.modules if m.startswith('trainshed')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['trainshed']"


def test_a_client_without_a_server_is_told_how_to_start_one(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path))
    monkeypatch.delenv("TRAINSHED_URL", raising=False)
    with pytest.raises(CannotProceedError, match="Start one with: trainshed up"):
        trainshed.connect()


def test_what_is_given_wins_over_the_environment(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOME": str(tmp_path), "URL": "http://127.0.0.1:1", "PROJECT": "from-environment"}.items():
        monkeypatch.setenv(f"TRAINSHED_{name}", value)
    assert (trainshed.connect().url, trainshed.connect().project) == ("http://127.0.0.1:1", "from-environment")
    given = trainshed.connect("http://127.0.0.1:2/", project="from-argument")
    assert (given.url, given.project) == ("http://127.0.0.1:2", "from-argument")
    with pytest.raises(InvalidArgumentError, match="project id"):
        trainshed.connect(project="No Project")


def test_a_job_gets_a_name_that_sorts_by_time_and_is_its_own() -> None:
    names = {_new_name("trainer.task") for _ in range(50)}
    assert len(names) > 1
    assert all(name.startswith("trainer_2") for name in names)
    assert _new_name("été.task").startswith("job_")


def test_arguments_may_be_words_or_a_mapping() -> None:
    assert _arguments(["--steps", 5]) == ["--steps", "5"]
    assert _arguments({"steps": 5, "--rate": 0.1}) == ["--steps", "5", "--rate", "0.1"]
    with pytest.raises(InvalidArgumentError, match="not one text"):
        _arguments("--steps 5")


@pytest.mark.parametrize(
    "arguments, words",
    [({}, "A job needs a package"), ({"packages": ["gs://b/p.tar.gz"]}, "A job needs a module")],
)
def test_what_no_job_can_run_with_is_said_before_anything_is_sent(arguments: dict[str, Any], words: str) -> None:
    nobody = sdk.Trainshed(Client("http://127.0.0.1:1"), "some-project")
    with pytest.raises(InvalidArgumentError, match=words):
        Jobs(nobody).submit("job_1", **arguments)


def test_versions_are_numbered_on() -> None:
    assert models._next([]) == "v1"
    assert models._next(["v1", "v9", "v10", "best"]) == "v11"


class Array:
    """As much of an array of NumPy's as matters."""

    def __init__(self, rows: list[list[float]]) -> None:
        self._rows = rows

    def tolist(self) -> list[list[float]]:
        return self._rows


def test_instances_become_what_json_can_hold() -> None:
    assert models._instances(Array([[1.0]])) == [[1.0]]
    assert models._instances([{"image": Array([[0.5]]), "raw": b"\x00"}, (1, 2)]) == [
        {"image": [[0.5]], "raw": {"b64": "AA=="}},
        [1, 2],
    ]
    with pytest.raises(InvalidArgumentError, match="must be a list"):
        models._instances({"x": 1})


def test_predictions_are_a_list() -> None:
    answer = [{"classes": 3, "probabilities": [0.1, 0.9]}]
    predictions = Predictions(answer)
    assert predictions == answer
    assert json.loads(json.dumps(predictions)) == answer
    assert predictions[0]["classes"] == 3


def test_predictions_are_drawn_as_bars_with_the_greatest_marked() -> None:
    predictions = Predictions([{"classes": [1], "probabilities": [0.25, 0.75]}], labels=["no", "yes"])
    bundle = predictions._repr_mimebundle_()
    assert bundle["text/html"].count('class="trainshed-bar"') == 2
    assert "width:75.00%" in bundle["text/html"]
    assert "<b>yes</b>" in bundle["text/html"]
    title, low, high = bundle["text/plain"].splitlines()
    assert title == "yes"
    assert low.count("█") == 10
    assert high.count("█") == 30
    assert high.lstrip().startswith("yes")


@pytest.mark.parametrize(
    "prediction, values",
    [
        ([0.1, 0.9], [0.1, 0.9]),
        ({"logits": [5.0, -1.0], "probabilities": [0.9, 0.1]}, [0.9, 0.1]),
        ({"classes": ["a"], "other": [1, 2]}, [1.0, 2.0]),
        ({"label": 1}, None),
        ("word", None),
        ([True, False], None),
        ([], None),
    ],
)
def test_which_numbers_of_a_prediction_are_drawn(prediction: Any, values: list[float] | None) -> None:
    assert vector(prediction) == values


def test_bars_of_what_is_no_number_or_no_probability() -> None:
    assert display.shares([0.5, 1.0]) == [0.5, 1.0]
    assert display.shares([5.0, 10.0, -1.0]) == [0.5, 1.0, 0.0]
    assert display.shares([float("nan"), 0.5]) == [0.0, 0.5]
    assert display.shares([]) == []


def test_texts_of_users_can_do_no_harm() -> None:
    job = {
        "job": EVIL,
        "state": EVIL,
        "elapsedSeconds": 3.0,
        "progress": PROGRESS,
        "waiting": EVIL,
        "error": EVIL,
        "replicas": [
            {
                "name": EVIL,
                "state": EVIL,
                "status": EVIL,
                "restarts": 1,
                "step": 1,
                "loss": EVIL,
                "cpu": 0.5,
                "memoryBytes": 1,
            }
        ],
    }
    shown = [
        display.job_panel(job, link=f"http://h/{EVIL}"),
        display.message(EVIL),
        display.bars([1.0], [EVIL]),
        display.table([{EVIL: EVIL}], [EVIL]),
        display.curves({EVIL: [1.0, 2.0]}),
        Predictions([{"classes": EVIL, "probabilities": [1.0, 0.0]}, EVIL], labels=[EVIL, EVIL])._repr_mimebundle_()[
            "text/html"
        ],
    ]
    for html in shown:
        assert "<img" not in html
        assert 'onerror="' not in html
        assert "&lt;img" in html


def test_how_far_a_job_is_as_a_value_and_as_words() -> None:
    progress = Progress.read(PROGRESS)
    assert (progress.step, progress.fraction, progress.accuracy) == (1204, 0.24, 0.94)
    assert progress.loss != progress.loss  # NaN, which JSON has no number for
    assert str(progress).startswith("step 1,204 of 5,000 (24 %), loss NaN, accuracy 0.94, 31 steps/s, about 2 min left")


def test_metrics_are_series_by_name() -> None:
    moment = "2026-11-16T03:00:00Z"
    row = {"name": "loss", "unit": "step", "step": [1, 2, 3], "time": [moment] * 3}
    raw = {
        "metrics": [
            row | {"evaluation": False, "value": [2.0, None, "NaN"]},
            row | {"evaluation": True, "value": [1.0] * 3},
        ]
    }
    metrics = Metrics.read(raw)
    assert list(metrics) == ["loss", "evaluation/loss"]
    assert metrics["loss"][0].value == 2.0
    assert [each.step for each in metrics["loss"]] == [1, 3]
    assert "polyline" in metrics._repr_html_()
    assert "none yet" in repr(Metrics({}))


def test_a_frame_without_pandas_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(CannotProceedError, match="pip install pandas"):
        Metrics({}).frame()


def test_a_log_line_reads_as_the_command_line_shows_it() -> None:
    line = LogLine.read(
        {"time": "2026-11-16T03:00:00.5Z", "severity": "INFO", "replica": "master-replica-0", "message": "step 1"}
    )
    assert str(line).startswith("INFO\t2026-11-16 ")
    assert str(line).endswith("\tmaster-replica-0\t\tstep 1")


def test_where_there_is_no_notebook_lines_are_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    live = display.Live()
    for text in ("one", "one", "two"):
        live.show("<b>html</b>", text)
    assert capsys.readouterr().out == "one\ntwo\n"


def test_errors_of_the_server_are_of_the_kind_that_their_code_says() -> None:
    from trainshed.client import transport

    error = transport.ApiNotFoundError("There is no job.", code=404, status="NOT_FOUND")
    assert isinstance(error, NotFoundError)
    assert isinstance(error, transport.ApiError)
    assert issubclass(transport.ApiUnavailableError, TrainshedError)
