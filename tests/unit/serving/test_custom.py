"""Prediction classes of the user's own: how they are found, checked and called."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from trainshed.serving.errors import BadOutputsError, InvalidInputsError, LoaderError, UserCodeError
from trainshed.serving.loaders.base import RawModel
from trainshed.serving.loaders.custom import CustomModel, load
from trainshed.serving.spec import ServingSpec

Writer = Callable[..., ServingSpec]

GOOD = """
    from pathlib import Path

    class Scaler:
        def __init__(self, factor):
            self.factor = factor

        def predict(self, instances, **kwargs):
            return [self.factor * value + kwargs.get("plus", 0) for value in instances]

        @classmethod
        def from_path(cls, model_dir):
            return cls(int(Path(model_dir, "factor.txt").read_text()))
"""


@pytest.fixture
def routine(tmp_path: Path) -> Iterator[Writer]:
    """Writes a module of its own into the packages of a version; what that imports is forgotten afterwards."""
    path, modules = list(sys.path), set(sys.modules)

    def write(code: str, name: str = "routine.Scaler") -> ServingSpec:
        site, model_dir = tmp_path / "site", tmp_path / "model"
        site.mkdir()
        model_dir.mkdir()
        (site / "routine.py").write_text(dedent(code))
        (model_dir / "factor.txt").write_text("3")
        return ServingSpec(model_dir=model_dir, loader="custom", prediction_class=name, site=str(site))

    yield write
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def failing(spec: ServingSpec) -> str:
    with pytest.raises(UserCodeError) as caught:
        load(spec)
    assert str(caught.value).endswith("(Error code: 4)")
    return caught.value.detail


def test_a_class_is_made_from_the_folder_and_asked(routine: Writer) -> None:
    model = load(routine(GOOD))
    assert model.predict([1, 2]) == [3, 6]
    assert model.predict([1], plus=10) == [13]
    assert not model.merges
    assert model.detail.startswith("routine.Scaler on Python 3")
    assert not isinstance(model, RawModel)


def test_answers_become_plain_and_need_not_be_one_for_each(routine: Writer) -> None:
    summing = GOOD.replace("return [", "import numpy; return numpy.array([sum(instances)]); [")
    model = load(routine(summing))
    assert model.predict([1, 2]) == [3]


def test_raw_bodies_reach_a_class_that_takes_them(routine: Writer) -> None:
    raw = """
        def raw_predict(self, body, content_type):
            return body[::-1], content_type + "; reversed"
"""
    model = load(routine(GOOD + raw))
    assert isinstance(model, RawModel)
    assert model.raw_predict(b"abc", "text/plain") == (b"cba", "text/plain; reversed")


def test_a_raw_answer_must_be_bytes_with_a_type(routine: Writer) -> None:
    model = load(routine(GOOD + "\n        def raw_predict(self, body, content_type):\n            return body\n"))
    assert isinstance(model, RawModel)
    with pytest.raises(UserCodeError, match="must return bytes and their content type"):
        model.raw_predict(b"abc", "text/plain")


def test_packages_of_the_version_come_before_others(routine: Writer) -> None:
    spec = routine(GOOD)
    (Path(spec.site) / "json").mkdir()
    load(spec)
    assert sys.path[0] == spec.site


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Scaler", "a prediction class is named with its module, as in package.module.Scaler"),
        ("routine.Other", "the module routine has no Other"),
        ("nowhere.Scaler", "Importing nowhere failed: ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_a_class_that_is_not_there_is_named(routine: Writer, name: str, words: str) -> None:
    assert failing(routine(GOOD, name)).rstrip(".").endswith(words)


def test_a_module_that_fails_says_where(routine: Writer) -> None:
    assert "ZeroDivisionError: division by zero (routine.py, line 3)" in failing(routine("\n\n    1 / 0\n"))


def test_no_class_at_all_is_the_model_s_fault(tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match="no prediction class is given"):
        load(ServingSpec(model_dir=tmp_path, loader="custom"))


@pytest.mark.parametrize("method", ["from_path", "predict"])
def test_a_class_needs_both_methods(routine: Writer, method: str) -> None:
    words = failing(routine(GOOD.replace(f"def {method}", "def other")))
    assert words == f"The provided class routine.Scaler is missing the required {method} method."


@pytest.mark.parametrize("arguments", ["self", "self, instances, threshold", "self, instances, threshold=1, **kwargs"])
def test_predict_takes_instances_and_keywords_only(routine: Writer, arguments: str) -> None:
    words = failing(routine(GOOD.replace("self, instances, **kwargs", arguments)))
    assert "has a predict method with an invalid signature" in words
    assert f"found ({arguments})" in words


def test_a_folder_that_the_class_does_not_like(routine: Writer) -> None:
    spec = routine(GOOD)
    (spec.model_dir / "factor.txt").write_text("three")
    assert failing(spec).startswith("routine.Scaler.from_path failed: ValueError: invalid literal")


def test_from_path_must_give_something_that_predicts(routine: Writer) -> None:
    words = failing(routine(GOOD.replace("return cls(int", "return (int")))
    assert words == "routine.Scaler.from_path returned a int, which has no predict method."


def test_what_predict_raises_is_told_with_its_place(routine: Writer) -> None:
    model = load(routine(GOOD))
    with pytest.raises(UserCodeError, match=r"routine.Scaler.predict failed: TypeError: .* \(routine.py, line 9\)"):
        model.predict([None])


def test_an_answer_must_be_a_list(routine: Writer) -> None:
    model = load(routine(GOOD.replace("return [self", "return 7 or [self")))
    assert isinstance(model, CustomModel)
    with pytest.raises(BadOutputsError, match="must return a list, not a int"):
        model.predict([1])


def test_a_class_that_wants_to_exit_only_fails(routine: Writer) -> None:
    model = load(routine(GOOD.replace("return [self", "raise SystemExit(3) or [self")))
    with pytest.raises(UserCodeError, match="predict failed: SystemExit: 3"):
        model.predict([1])


@pytest.mark.parametrize("kind", ["text/html\\r\\nx-other: 1", "", "a\\0b", "\\u2603"])
def test_a_type_that_no_header_can_hold_is_refused(routine: Writer, kind: str) -> None:
    raw = f"\n        def raw_predict(self, body, content_type):\n            return body, '{kind}'\n"
    model = load(routine(GOOD + raw))
    assert isinstance(model, RawModel)
    with pytest.raises(UserCodeError, match="can't be a content type"):
        model.raw_predict(b"abc", "text/plain")


def test_a_field_with_the_name_of_an_argument_is_the_callers_mistake(routine: Writer) -> None:
    model = load(routine(GOOD))
    with pytest.raises(InvalidInputsError, match="'self'"):
        model.predict([1], self=2)
