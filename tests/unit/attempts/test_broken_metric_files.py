"""A hundred broken metric files: each gives the right value, or a sentence that names the cause."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from trainshed.attempts.event_files import MAX_DEPTH, EventFolder
from trainshed.attempts.trial_metrics import TrialMetrics
from trainshed.control.tuning.controller import ended_message
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.tuning.trial import Trial, TrialOutcome
from trainshed.domain.tuning.trial_job import trial_job
from trainshed.node.process.metric_reports import HYPERTUNE_FILE
from trainshed.testing.workloads.event_files import event, framed, simple_value

TAG = "epoch_accuracy"
STEPS = 20
START_S = 1000.0
MAX_READS = 2000


@dataclass(frozen=True)
class Case:
    """A way to break files. `expected` is the step of the final value, or words of the sentence."""

    name: str
    write: Callable[[Path, random.Random], None]
    expected: int | str


def value_at(step: int) -> float:
    return step / 64  # exact as a float


def records(count: int = STEPS, tag: str = TAG, start_s: float = START_S) -> list[bytes]:
    return [framed(event(start_s + step, step, simple_value(tag, value_at(step)))) for step in range(1, count + 1)]


def event_file(folder: Path, data: bytes, name: str = "1") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"events.out.tfevents.{name}").write_bytes(data)


def report(step: object, value: object, *, tag: str = TAG, time_s: object = None) -> str:
    time_s = START_S + float(str(step)) if time_s is None else time_s
    return json.dumps({"checkpoint_path": "", "global_step": str(step), "timestamp": time_s, "trial": "1", tag: value})


def report_file(folder: Path, text: str) -> None:
    (folder / "hypertune").mkdir(parents=True, exist_ok=True)
    (folder / "hypertune" / HYPERTUNE_FILE).write_text(text)


def reports(count: int = STEPS, **fields: str) -> list[str]:
    return [report(step, str(value_at(step)), **fields) for step in range(1, count + 1)]


def cut_events(whole: int) -> Case:
    """The file ends within the record behind `whole` ones."""

    def write(folder: Path, chance: random.Random) -> None:
        found = records()
        event_file(folder, b"".join(found[:whole]) + found[whole][: chance.randrange(12, len(found[whole]))])

    return Case(f"events cut behind {whole}", write, whole or "ends within a record, at byte 0")


def damaged_events(whole: int) -> Case:
    """A byte of the record behind `whole` ones is another one."""

    def write(folder: Path, chance: random.Random) -> None:
        found = records()
        start = sum(map(len, found[:whole]))
        data = bytearray(b"".join(found))
        data[start + chance.randrange(len(found[whole]))] ^= 1 << chance.randrange(8)
        event_file(folder, bytes(data))

    return Case(f"events damaged behind {whole}", write, whole or "is damaged at byte 0")


def cut_reports(whole: int) -> Case:
    def write(folder: Path, chance: random.Random) -> None:
        lines = reports()
        cut = lines[whole][: chance.randrange(1, len(lines[whole]))]
        report_file(folder, "\n".join([*lines[:whole], cut]))

    return Case(f"reports cut behind {whole}", write, whole or "is cut off or no JSON object")


def final_value(text: str) -> Case:
    def write(folder: Path, chance: random.Random) -> None:
        report_file(folder, "\n".join([*reports(), report(STEPS + 1, text)]))

    return Case(f"the last report is {text}", write, "a value of 'epoch_accuracy' that is not finite")


def final_event(value: float) -> Case:
    def write(folder: Path, chance: random.Random) -> None:
        last = framed(event(START_S + 99, STEPS + 1, simple_value(TAG, value)))
        event_file(folder, b"".join([*records(), last]))

    return Case(f"the last event is {value}", write, "a value of 'epoch_accuracy' that is not finite")


def inner_value(text: str) -> Case:
    def write(folder: Path, chance: random.Random) -> None:
        lines = reports()
        lines[chance.randrange(STEPS - 1)] = report(3, text)
        report_file(folder, "\n".join(lines))

    return Case(f"one report is {text}", write, STEPS)


def wrong_tag(tag: str) -> Case:
    def write(folder: Path, chance: random.Random) -> None:
        if chance.random() < 0.5:
            event_file(folder, b"".join(records(tag=tag)))
        else:
            report_file(folder, "\n".join(report(step, "0.5", tag=tag) for step in range(STEPS)))

    return Case(f"the tag is {tag}", write, f"The nearest is {tag!r}")


def bad_report(name: str, line: str, words: str) -> Case:
    return Case(name, lambda folder, chance: report_file(folder, line + "\n"), words)


def bytes_case(name: str, data: bytes, expected: int | str) -> Case:
    return Case(name, lambda folder, chance: event_file(folder, data), expected)


def deep(depth: int) -> Case:
    def write(folder: Path, chance: random.Random) -> None:
        event_file(folder.joinpath(*map(str, range(depth))), b"".join(records()))

    return Case(f"{depth} folders deep", write, STEPS)


def shuffled(folder: Path, chance: random.Random) -> None:
    lines = reports()
    chance.shuffle(lines)
    report_file(folder, "\n".join(lines))


def with_zeros(folder: Path, chance: random.Random) -> None:
    event_file(folder, b"".join(records()) + bytes(4096))  # as a file system leaves them after a crash


def million(folder: Path, chance: random.Random) -> None:
    pieces = [framed(event(START_S + step, step, simple_value(TAG, 0.5))) for step in range(1000)]
    event_file(folder, b"".join(pieces) * 1000 + records(1)[0])
    last = framed(event(START_S + 5000, 1_000_000, simple_value(TAG, value_at(1_000_000))))
    event_file(folder, last, name="2")


def in_second_file(folder: Path, chance: random.Random) -> None:
    event_file(folder, b"no events at all", name="0")
    event_file(folder, b"".join(records()))


HUGE = struct.pack("<Q", 1 << 60) + bytes(8)
CASES = [
    *(cut_events(whole) for whole in range(STEPS)),
    *(damaged_events(whole) for whole in range(STEPS)),
    *(cut_reports(whole) for whole in range(STEPS)),
    *(final_value(text) for text in ("nan", "inf", "-inf", "NaN", "1e999")),
    *(final_event(value) for value in (float("nan"), float("inf"), float("-inf"))),
    *(inner_value(text) for text in ("nan", "inf", "much", "", "None", "1e999")),
    *(wrong_tag(tag) for tag in ("epoch_acc", "Epoch_Accuracy", "eval/epoch_accuracy", "accuracy", "loss", "x y", "é")),
    *(deep(depth) for depth in (1, 5, MAX_DEPTH)),
    bad_report("no time", '{"epoch_accuracy": "0.5", "global_step": "1"}', "no 'timestamp'"),
    bad_report("no step", '{"epoch_accuracy": "0.5", "timestamp": 1}', "no 'global_step'"),
    bad_report("a step in words", report(1, "0.5").replace('"1"', '"one"', 1), "invalid literal for int()"),
    bad_report("a step below 0", report(-5, "0.5", time_s=1), "a time or a step that can't be"),
    bad_report("a time below 0", report(1, "0.5", time_s=-9), "a time or a step that can't be"),
    bad_report("a time without end", report(1, "0.5").replace("1001.0", "1e400"), "is cut off or no JSON object"),
    bad_report("a value in words", report(1, "much"), "could not convert string to float"),
    bad_report("a value that is a list", report(1, [1]), "could not convert string to float"),
    bad_report("a list", "[1, 2]", "is cut off or no JSON object"),
    bad_report("no JSON", "accuracy = 0.5", "is cut off or no JSON object"),
    bad_report("an empty object", "{}", "It reported no metric at all"),
    bytes_case("no events", b"this is text, not events", "is damaged at byte 0"),
    bytes_case("an empty file", b"", "It reported no metric at all"),
    bytes_case("a length without end", HUGE, "is damaged at byte 0"),
    bytes_case(
        "an event with a step below 0",
        framed(event(START_S, -1, simple_value(TAG, 1.0))),
        "a time or a step that can't be",
    ),
    bytes_case(
        "an event without a time",
        framed(event(float("nan"), 1, simple_value(TAG, 1.0))),
        "a time or a step that can't be",
    ),
    bytes_case("from before", b"".join(records(start_s=10.0)), "Is a clock wrong?"),
    Case("zeros at the end", with_zeros, STEPS),
    Case("reports out of order", shuffled, STEPS),
    Case("a second file", in_second_file, STEPS),
    Case("a million events", million, 1_000_000),
]


def ended(outcome: TrialOutcome) -> str:
    """The sentence for the log of a trial that ended with this outcome."""
    x = {"parameterName": "x", "type": "DOUBLE", "minValue": 0.0, "maxValue": 1.0}
    training = Training.parse({"hyperparameters": {"hyperparameterMetricTag": TAG, "params": [x]}})
    assert training.tuning is not None
    search = Job(project="p", id="j", workload=training, created_us=0, replicas=0)
    job = replace(trial_job(search, 1, {"x": "0.5"}, now_us=0), state=JobState.SUCCEEDED)
    return ended_message(Trial(number=1, point={"x": 0.5}, job=job, outcome=outcome), training.tuning)


def test_there_are_a_hundred() -> None:
    assert len(CASES) >= 100
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_broken_file_gives_the_right_value_or_names_its_cause(case: Case, tmp_path: Path) -> None:
    case.write(tmp_path, random.Random(case.name))
    metrics = TrialMetrics(TAG, since_us=int(START_S * 1e6))
    for _ in range(MAX_READS):
        metrics.update([EventFolder(tmp_path, ())], EventFolder(tmp_path, ()), [EventFolder(tmp_path, ("hypertune",))])
        if metrics.complete:
            break
    outcome = metrics.outcome()
    if isinstance(case.expected, int):
        assert outcome.final is not None, ended(outcome)
        assert (outcome.final.step, outcome.final.value) == (case.expected, value_at(case.expected))
    else:
        assert case.expected in ended(outcome)
