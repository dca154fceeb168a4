"""The metric of a trial, read from what its trainer writes: in event files, with hypertune, and damaged."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trainshed.attempts.event_files import EventFolder
from trainshed.attempts.trial_metrics import TrialMetrics
from trainshed.domain.tuning.trial import MAX_MEASUREMENTS, TrialOutcome
from trainshed.node.process.metric_reports import HYPERTUNE_FILE, REPORTS_FILE, append_reports
from trainshed.testing.workloads.event_files import write_events

TAG = "epoch_accuracy"


def report(value: object, step: int, time: float, tag: str = TAG) -> str:
    return json.dumps(
        {"checkpoint_path": "", "global_step": str(step), "timestamp": time, "trial": "1", tag: str(value)}
    )


def read(folder: Path, tag: str = TAG) -> TrialOutcome:
    metrics = TrialMetrics(tag, since_us=0)
    metrics.update([EventFolder(folder, ())], EventFolder(folder, ()), [EventFolder(folder, ("reports",))])
    return metrics.outcome()


def write_reports(folder: Path, *lines: str) -> Path:
    (folder / "reports").mkdir(exist_ok=True)
    path = folder / "reports" / HYPERTUNE_FILE
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


class TestHypertune:
    def test_the_last_report_by_time_is_the_final_metric(self, tmp_path: Path) -> None:
        write_reports(tmp_path, report(0.9, 0, 30.0), report(0.1, 0, 10.0), report(0.5, 0, 20.0))
        outcome = read(tmp_path)
        assert outcome.source == "hypertune"
        assert [each.value for each in outcome.measurements] == [0.1, 0.5, 0.9]
        assert outcome.final is not None
        assert (outcome.final.step, outcome.final.value) == (0, 0.9)

    def test_what_was_read_stays_when_the_file_is_truncated(self, tmp_path: Path) -> None:
        path = write_reports(tmp_path, report(0.1, 1, 1.0), report(0.2, 2, 2.0))
        metrics = TrialMetrics(TAG, since_us=0)
        folders = [EventFolder(tmp_path, ("reports",))]
        metrics.update([], EventFolder(tmp_path, ()), folders)
        path.write_text("")
        metrics.update([], EventFolder(tmp_path, ()), folders)
        path.write_text(report(0.3, 3, 3.0) + "\n" + report(0.4, 4, 4.0)[:20])
        metrics.update([], EventFolder(tmp_path, ()), folders)
        assert [each.step for each in metrics.outcome().measurements] == [1, 2, 3]

    @pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
    def test_a_last_value_that_is_not_finite_leaves_no_final_metric(self, tmp_path: Path, value: str) -> None:
        write_reports(tmp_path, report(0.1, 1, 1.0), report(value, 2, 2.0))
        outcome = read(tmp_path)
        assert (outcome.diverged, outcome.final, len(outcome.measurements)) == (True, None, 1)

    def test_one_in_between_is_left_out(self, tmp_path: Path) -> None:
        write_reports(tmp_path, report(0.1, 1, 1.0), report("nan", 2, 2.0), report(0.3, 3, 3.0))
        outcome = read(tmp_path)
        assert outcome.final is not None
        assert (outcome.diverged, outcome.final.value, len(outcome.measurements)) == (False, 0.3, 2)

    def test_other_tags_are_remembered(self, tmp_path: Path) -> None:
        write_reports(tmp_path, report(0.1, 1, 1.0, tag="my_metric"))
        assert read(tmp_path).tags == ("my_metric",)

    @pytest.mark.parametrize(
        "line",
        [
            "[]",
            "3",
            "{",
            '{"epoch_accuracy": "0.5"}',
            '{"epoch_accuracy": "much", "timestamp": 1, "global_step": "1"}',
            '{"epoch_accuracy": "0.5", "timestamp": 1e400, "global_step": "1"}',
            '{"epoch_accuracy": "0.5", "timestamp": 1, "global_step": "one"}',
            '{"epoch_accuracy": "0.5", "timestamp": -1, "global_step": "1"}',
        ],
    )
    def test_a_damaged_line_is_passed_over(self, tmp_path: Path, line: str) -> None:
        write_reports(tmp_path, line, report(0.5, 1, 1.0))
        assert [each.value for each in read(tmp_path).measurements] == [0.5]

    def test_what_is_no_file_is_passed_over(self, tmp_path: Path) -> None:
        (tmp_path / "reports").mkdir()
        os.mkfifo(tmp_path / "reports" / HYPERTUNE_FILE)
        assert read(tmp_path) == TrialOutcome()
        (tmp_path / "reports" / HYPERTUNE_FILE).unlink()
        secret = tmp_path / "secret"
        secret.write_text(report(0.5, 1, 1.0))
        (tmp_path / "reports" / HYPERTUNE_FILE).symlink_to(secret)
        assert read(tmp_path) == TrialOutcome()


class TestEventFiles:
    def test_an_evaluation_counts_and_its_folder_is_named(self, tmp_path: Path) -> None:
        for folder, value in (("train", 0.99), ("validation", 0.7), ("other", 0.1)):
            write_events(tmp_path / "logs" / folder, *((n + 1.0, n, {TAG: value + n / 100}) for n in range(3)))
        outcome = read(tmp_path)
        assert outcome.source == "logs/validation"
        assert outcome.final is not None
        assert outcome.final.value == pytest.approx(0.72)

    def test_hypertune_counts_before_event_files(self, tmp_path: Path) -> None:
        write_events(tmp_path / "eval", (1.0, 1, {TAG: 0.7}))
        write_reports(tmp_path, report(0.5, 1, 1.0))
        assert read(tmp_path).source == "hypertune"

    def test_tags_that_were_written_are_remembered(self, tmp_path: Path) -> None:
        write_events(tmp_path, (1.0, 1, {"loss": 0.7}), (2.0, 2, {"epoch_acc": 0.7}))
        assert read(tmp_path).tags == ("loss", "epoch_acc")

    def test_very_many_values_are_thinned_out(self, tmp_path: Path) -> None:
        write_events(tmp_path, *((step + 1.0, step, {TAG: float(step)}) for step in range(1000)))
        outcome = read(tmp_path)
        assert len(outcome.measurements) == MAX_MEASUREMENTS
        assert outcome.final is not None
        assert outcome.final.step == 999


class TestCopy:
    """The copy of all reports, which is there when hypertune's own file is gone or on a node."""

    def test_reports_of_the_copy_and_of_the_file_are_one_curve(self, tmp_path: Path) -> None:
        append_reports(
            str(tmp_path / REPORTS_FILE), "".join(report(step, step, step) + "\n" for step in range(5)).encode()
        )
        write_reports(tmp_path, *(report(step, step, step) for step in range(3, 8)))
        assert [each.step for each in read(tmp_path).measurements] == list(range(8))

    def test_it_is_read_as_it_grows_and_when_it_was_thinned_out(self, tmp_path: Path) -> None:
        path, metrics = tmp_path / REPORTS_FILE, TrialMetrics(TAG, since_us=0)
        for step in range(1, 4):
            append_reports(str(path), (report(step, step, step) + "\n").encode())
            metrics.update([], EventFolder(tmp_path, ()), [])
            assert [each.step for each in metrics.outcome().measurements] == list(range(1, step + 1))
        thinned = tmp_path / "thinned"
        thinned.write_text(report(3, 3, 3.0) + "\n" + report(9, 9, 9.0) + "\n" + report(10, 10, 10.0)[:9])
        thinned.rename(path)
        metrics.update([], EventFolder(tmp_path, ()), [])
        assert [each.step for each in metrics.outcome().measurements] == [1, 2, 3, 9]
