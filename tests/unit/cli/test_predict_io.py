"""What `predict` reads and prints: instances in files, and the table that notebooks take apart."""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from trainshed.cli.models.predict_io import (
    MAX_INSTANCES,
    lines_of,
    parse_instances,
    parse_request,
    predictions_text,
    read_text,
    request_body,
)
from trainshed.errors import InvalidArgumentError

NONE = {"json_instances": None, "json_request": None, "text_instances": None, "signature_name": None}


def shown(*predictions: Any) -> str:
    return predictions_text({"predictions": list(predictions)})


def test_the_table_of_the_first_document() -> None:
    """The notebook reads the second line and takes what stands in brackets: the form matters."""
    one = {"probabilities": [7.127025003690092e-15, 3.894632616407989e-09], "classes": 7}
    two = {"probabilities": [1.0, 9.028149372704427e-16], "classes": 10}
    assert shown(one, two) == (
        "CLASSES  PROBABILITIES\n"
        "7        [7.127025003690092e-15, 3.894632616407989e-09]\n"
        "10       [1.0, 9.028149372704427e-16]"
    )


def test_columns_are_sorted_upper_case_and_two_blanks_apart() -> None:
    answer = shown({"logits": [0.5], "class_ids": [0], "classes": ["setosa"], "probabilities": [0.25]})
    assert answer.splitlines() == [
        "CLASS_IDS  CLASSES     LOGITS  PROBABILITIES",
        "[0]        ['setosa']  [0.5]   [0.25]",
    ]


def test_no_line_ends_in_blanks() -> None:
    answer = shown({"a": "x", "b": None}, {"a": "long text", "b": "y"})
    assert answer == "A          B\nx\nlong text  y"


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (7, "7"),
        (1.0, "1.0"),
        (1e-09, "1e-09"),
        (True, "True"),
        ("bare", "bare"),
        (["quoted", 1], "['quoted', 1]"),
        ({"x": 1}, "{'x': 1}"),
        ([[1, 2], [3, 4]], "[[1, 2], [3, 4]]"),
        (None, ""),
        (math.nan, "nan"),
        ({"b64": "YQ=="}, "{'b64': 'YQ=='}"),
    ],
)
def test_a_cell_is_written_as_python_would(value: Any, cell: str) -> None:
    assert shown({"column": value}) == f"COLUMN\n{cell}".rstrip(" ")


def test_the_first_prediction_chooses_the_columns() -> None:
    assert shown({"b": 1, "a": 2}, {"a": 3, "c": 4}, "stray").split("\n") == ["A  B", "2  1", "3", ""]


@pytest.mark.parametrize(
    ("predictions", "line"),
    [
        ([1.0, 1.0], "[1.0, 1.0]"),
        (["abc", "abc"], "['abc', 'abc']"),
        ([[0.1, 0.9]], "[[0.1, 0.9]]"),
        ([None], "[None]"),
    ],
)
def test_predictions_without_names_are_one_line(predictions: list[Any], line: str) -> None:
    assert shown(*predictions) == line


def test_no_predictions_are_said_to_be_none() -> None:
    assert shown() == "predictions: []"


@pytest.mark.parametrize("answer", [{"error": "Prediction failed"}, {"predictions": {"a": 1}}, {"outputs": [1]}, [1]])
def test_what_has_no_list_of_predictions_is_shown_whole(answer: Any) -> None:
    assert json.loads(predictions_text(answer)) == answer


def test_instances_are_lines_of_json(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_bytes('\ufeff{"inputs": [0.5, 1]}\r\n[1, "ü"]\n3'.encode())
    body = request_body(**NONE | {"json_instances": str(file)})
    assert body == {"instances": [{"inputs": [0.5, 1]}, [1, "ü"], 3]}


def test_text_instances_are_lines_as_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text('6.4, 3.2\n{"a": 1}\n')
    given = NONE | {"text_instances": str(file), "signature_name": "predict"}
    assert request_body(**given) == {"instances": ["6.4, 3.2", '{"a": 1}'], "signature_name": "predict"}


def test_a_request_is_sent_as_it_stands_and_the_flag_wins(tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_text(json.dumps({"instances": [[1]], "signature_name": "a", "threshold": 0.5}))
    given = NONE | {"json_request": str(file)}
    assert request_body(**given) == {"instances": [[1]], "signature_name": "a", "threshold": 0.5}
    assert request_body(**given | {"signature_name": "b"})["signature_name"] == "b"


def test_a_dash_is_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[1]\n[2]\n")))
    assert request_body(**NONE | {"json_instances": "-"}) == {"instances": [[1], [2]]}


@pytest.mark.parametrize("given", [{}, {"json_instances": "a", "text_instances": "b"}])
def test_exactly_one_file_must_be_given(given: dict[str, str]) -> None:
    with pytest.raises(click.UsageError, match="Exactly one of"):
        request_body(**NONE | given)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "No valid instance was found in input file."),
        ("[1]\n\n[2]\n", "Empty line is not allowed in the instances file."),
        ("[1]\n\n", "Empty line is not allowed in the instances file."),
        ("[1]\n  \n", "Empty line is not allowed in the instances file."),
        ("[1]\n{1}\n", "not in JSON format, at line 2"),
        ('{"instances":\n[1]}\n', "See `--json-request`"),
        ("[1]\n" * (MAX_INSTANCES + 1), "no more than 100 instances"),
    ],
)
def test_a_file_of_instances_that_makes_no_sense(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        parse_instances(text)


def test_as_many_instances_as_are_allowed() -> None:
    assert len(lines_of("a\n" * MAX_INSTANCES)) == MAX_INSTANCES


@pytest.mark.parametrize("text", ["[]", "{}", '{"instances": 1}', '{"instances": []}', "nonsense", '"instances"'])
def test_a_request_that_makes_no_sense(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="nput request"):
        parse_request(text)


def test_a_file_that_can_t_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"Unable to read file \[.*nothing\]: No such file or directory\."):
        read_text(str(tmp_path / "nothing"))
    (tmp_path / "bytes").write_bytes(b"ok \xff")
    with pytest.raises(InvalidArgumentError, match="is not UTF-8 text: invalid start byte at byte 3"):
        read_text(str(tmp_path / "bytes"))
