"""Which runtime a job gets, and what makes two runtimes the same."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from trainshed.errors import DiskFullError, InvalidArgumentError, UnavailableError
from trainshed.runtimes.catalogue import CATALOGUE, DEFAULT_RUNTIME, read_pins
from trainshed.runtimes.progress import BuildMeter, monotonic
from trainshed.runtimes.resolution import RuntimeChoice, resolve
from trainshed.runtimes.uv import error_message, explain_failure, find_uv

ALL = frozenset(CATALOGUE)
WITHOUT_37 = ALL - {"1.15"}


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_runtime_of_the_catalogue_is_itself(name: str) -> None:
    assert resolve(name, None, available=ALL) == RuntimeChoice(name)


@pytest.mark.parametrize("asked", [None, ""])
def test_a_job_that_names_none_gets_the_newest(asked: str | None) -> None:
    assert resolve(asked, None, available=ALL) == RuntimeChoice("2.21")


def _nearest(asked: tuple[int, int], available: frozenset[str]) -> str | None:
    """What the rule says, by looking through all: the smallest number that is not below the one asked for."""
    at_least = sorted(n for n in ((1, 15), (2, 15), (2, 21)) if n >= asked and f"{n[0]}.{n[1]}" in available)
    return f"{at_least[0][0]}.{at_least[0][1]}" if at_least else None


@pytest.mark.parametrize("available", [ALL, WITHOUT_37], ids=["all", "no Python 3.7"])
def test_every_number_gets_the_nearest_that_is_not_older(available: frozenset[str]) -> None:
    for major in range(4):
        for minor in range(40):
            asked = f"{major}.{minor}"
            wanted = _nearest((major, minor), available)
            if wanted is None:
                with pytest.raises(InvalidArgumentError, match=r"2\.21 \(Python 3\.11\)") as caught:
                    resolve(asked, None, available=available)
                assert caught.value.field == "training_input.runtime_version"
                continue
            choice = resolve(asked, None, available=available)
            assert (asked, choice.name) == (asked, wanted)
            assert bool(choice.notes) == (asked != wanted)


@pytest.mark.parametrize(
    "asked, available, name, note",
    [
        ("1.2", ALL, "1.15", "Runtime 1.2 is not offered any more; this job runs on 1.15, the nearest newer one."),
        (
            "1.2",
            WITHOUT_37,
            "2.15",
            "Runtime 1.2 is not offered any more; this job runs on 2.15, the nearest newer one.",
        ),
        ("2.1", ALL, "2.15", "Runtime 2.1 is not offered any more; this job runs on 2.15, the nearest newer one."),
        ("2.16", ALL, "2.21", "Runtime 2.16 is not offered any more; this job runs on 2.21, the nearest newer one."),
        (
            "1.15",
            WITHOUT_37,
            "2.15",
            "Runtime 1.15 needs Python 3.7, which this machine does not have; "
            "this job runs on 2.15, the nearest newer one.",
        ),
    ],
)
def test_the_user_is_told_about_another_runtime(asked: str, available: frozenset[str], name: str, note: str) -> None:
    assert resolve(asked, None, available=available) == RuntimeChoice(name, (note,))


@pytest.mark.parametrize(
    "asked",
    [
        "2.22",
        "3.0",
        "999.999",
        "latest",
        "2",
        "2.",
        ".15",
        "2.15.1",
        "02.1",
        "2.01",
        "1,15",
        " 2.15",
        "2.1\n",
        "-1.2",
        "Python",
    ],
)
def test_newer_than_all_and_nonsense_list_what_there_is(asked: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        resolve(asked, None, available=ALL)
    assert caught.value.field == "training_input.runtime_version"
    offer = (
        "2.21 (Python 3.11), 2.15 (Python 3.11), 1.15 (Python 3.7), torch (Python 3.11), torch-cuda (Python 3.11), "
        "jax (Python 3.11), python (Python 3.11)."
    )
    assert f"The runtimes are: {offer}" in str(caught.value)


def test_what_cannot_be_had_here_is_not_listed() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        resolve("nonsense", None, available=WITHOUT_37)
    assert "1.15" not in str(caught.value)
    with pytest.raises(InvalidArgumentError, match=r"needs Python 3\.11.*No runtime can be had"):
        resolve("python", None, available=())


@pytest.mark.parametrize("asked, python", [("1.15", "3.7"), ("2.15", "3.11"), ("2.21", "3.11"), ("python", "3.11")])
def test_the_python_of_the_runtime_needs_no_words(asked: str, python: str) -> None:
    assert resolve(asked, python, available=ALL).notes == ()


@pytest.mark.parametrize("python", ["2.7", "3.5", "3.8", "3.12"])
def test_another_python_is_accepted_with_a_sentence(python: str) -> None:
    choice = resolve("1.15", python, available=ALL)
    assert choice.notes == (f"Python {python} is not offered on runtime 1.15; this job runs on Python 3.7.",)


def test_an_old_runtime_and_an_old_python_are_two_sentences() -> None:
    choice = resolve("1.14", "3.5", available=ALL)
    assert choice.name == "1.15"
    assert len(choice.notes) == 2


@pytest.mark.parametrize("python", ["3", "4.0", "2.6", "python3.7", "3.7.16", "3.05", "3.7 ", "snake"])
def test_a_python_that_is_none_is_refused(python: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        resolve(None, python, available=ALL)
    assert caught.value.field == "training_input.python_version"


def test_every_package_is_pinned_and_each_runtime_has_what_the_node_needs() -> None:
    for runtime in CATALOGUE.values():
        names = [pin.split("==")[0] for pin in runtime.pins]
        assert all(len(re.findall("={2,3}", pin)) == 1 and "*" not in pin for pin in runtime.pins), runtime.name
        assert len(names) == len(set(names))
        assert {"psutil", "setuptools", "wheel"} <= set(names), runtime.name
    assert DEFAULT_RUNTIME in CATALOGUE


def test_the_digest_stands_for_the_content() -> None:
    runtime = CATALOGUE["python"]
    assert replace(runtime).digest == runtime.digest
    assert replace(runtime, summary="other words").digest == runtime.digest
    others = [
        replace(runtime, python="3.12"),
        replace(runtime, name="other"),
        replace(runtime, pins=runtime.pins[1:]),
        replace(runtime, pins=(*runtime.pins[:-1], "wheel==0.1")),
        replace(runtime, stands_for=("other==1",)),
    ]
    assert len({runtime.digest, *(other.digest for other in others)}) == 6


def test_a_lock_file_is_read_without_its_comments() -> None:
    assert read_pins("# made by hand\n\na==1  # why\n b==2\n") == ("a==1", "b==2")


def test_uv_is_found() -> None:
    assert find_uv().is_file()


@pytest.mark.parametrize(
    "output, kind, words",
    [
        ("error: failed to write\n  Caused by: No space left on device (os error 28)", DiskFullError, "disk is full"),
        (
            "error: Failed to fetch: `https://x/simple/a/`\n  Caused by: dns error",
            UnavailableError,
            "check the network",
        ),
        (
            "  × No solution found when resolving dependencies:\n  ╰─▶ Because a was not found in the package registry",
            UnavailableError,
            "does not have this package",
        ),
        (
            "  × No solution found when resolving dependencies:\n  ╰─▶ Because there is no torch==2.13.0+cpu",
            UnavailableError,
            "no build 'cpu' of torch: set TRAINSHED_SERVER_RUNTIME_FIND_LINKS",
        ),
        ("error: something else", UnavailableError, "something else"),
        ("", UnavailableError, "it said nothing"),
    ],
)
def test_what_uv_says_becomes_a_sentence_with_a_remedy(output: str, kind: type[Exception], words: str) -> None:
    error = explain_failure("Building runtime 2.21", output)
    assert type(error) is kind
    assert words in str(error)
    assert str(error).startswith("Building runtime 2.21 failed")


def test_the_last_words_are_those_of_the_error() -> None:
    output = (
        "Using Python 3.11\nResolved 4 packages\nerror: Failed to fetch: `https://me:secret@x/a`\n  Caused by: lost\n"
    )
    assert error_message(output) == "Failed to fetch: `https://x/a` Caused by: lost"


def test_progress_never_falls() -> None:
    told: list[float] = []
    tell = monotonic(lambda fraction, text: told.append(fraction))
    for fraction in (0.1, 0.5, 0.0, 0.4, 0.6):
        tell(fraction, "")
    assert told == [0.1, 0.5, 0.5, 0.5, 0.6]


def test_the_meter_counts_packages_then_compiled_files(tmp_path: Path) -> None:
    meter = BuildMeter(site=tmp_path, packages=2, unpacked_bytes=1 << 20)
    gone = 2**22 - 1  # no such process: nothing is written
    start, text = meter.look(gone)
    assert text.startswith("Fetching packages: 0 MB")
    (tmp_path / "a-1.dist-info").mkdir()
    one, text = meter.look(gone)
    assert text == "Installing: 1 of 2 packages"
    (tmp_path / "b-1.dist-info").mkdir()
    (tmp_path / "a.py").touch()
    (tmp_path / "b.py").touch()
    both, text = meter.look(gone)
    assert text == "Compiling: 0 of 2 files"
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.cpython-311.pyc").touch()
    half, text = meter.look(gone)
    assert text == "Compiling: 1 of 2 files"
    assert 0 <= start < one < both < half < 1


def test_trainers_of_every_runtime_can_report_to_a_search() -> None:
    without = [
        name
        for name, runtime in CATALOGUE.items()
        if not any(pin.startswith("cloudml-hypertune==") for pin in runtime.pins)
    ]
    assert without == []
