"""What a tuning job does next, and how it ends: every case without a clock, a queue or a process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training, check_training
from trainshed.domain.tuning.hyperparameters import HYPERPARAMETERS, Tuning
from trainshed.domain.tuning.plan import Become, CancelTrials, StartTrials, StopTrials, Wait, nearest_tag, plan
from trainshed.domain.tuning.steering import OwnPoint, Steering
from trainshed.domain.tuning.trial import MAX_MEASUREMENTS, Trial, TrialMeasurement, TrialOutcome, best_first, thinned
from trainshed.domain.tuning.trial_job import trial_job

X = {"parameterName": "x", "type": "DOUBLE", "minValue": 0.0, "maxValue": 1.0}
EXITED = Failure(
    cause=FailureCause.REPLICA_EXITED, replica="master-replica-0", exit_code=1, output="ValueError: no data"
)
SECOND = 1_000_000


def tuning_job(state: JobState = JobState.RUNNING, *, limit: str = "", **hyperparameters: Any) -> Job:
    training_input: dict[str, Any] = {
        "pythonModule": "trainer.task",
        "packageUris": ["gs://b/p.whl"],
        "args": ["--x", "9"],
        "jobDir": "gs://b/out/",
        "hyperparameters": {"params": [X], "maxTrials": 8, "maxParallelTrials": 2, **hyperparameters},
    }
    if limit:
        training_input["scheduling"] = {"maxRunningTime": limit}
    started = None if state in (JobState.QUEUED, JobState.PREPARING) else 0
    job = Job(
        project="p", id="j", workload=check_training(training_input), created_us=0, replicas=0, state=state, attempt=1
    )
    return replace(job, started_us=started)


def trial(
    number: int, state: JobState = JobState.SUCCEEDED, *values: float, parent: Job | None = None, **changes: Any
) -> Trial:
    """A trial that ended in this state with these values, in the order of the numbers; or one that is in it."""
    job = trial_job(parent or tuning_job(), number, {"x": "0.5"}, now_us=0)
    ended = state in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
    job = replace(
        job,
        state=state,
        attempt=0 if state is JobState.QUEUED else 1,
        started_us=None if state in (JobState.QUEUED, JobState.PREPARING) else 1,
        ended_us=number if ended else None,
        failure=EXITED if state is JobState.FAILED else None,
    )
    measurements = tuple(TrialMeasurement(step, step, value) for step, value in enumerate(values))
    outcome = TrialOutcome(measurements=measurements, source="hypertune") if ended else None
    return replace(Trial(number=number, point={"x": 0.5}, job=job, outcome=outcome), **changes)


def decide(job: Job, trials: Sequence[Trial], *, exhausted: bool = False, now_us: int = SECOND) -> object:
    return plan(job, trials, exhausted=exhausted, now_us=now_us)


RUNNING = JobState.RUNNING
OK, BAD = JobState.SUCCEEDED, JobState.FAILED


@pytest.mark.parametrize(
    ("trials", "action"),
    [
        ([], StartTrials(2)),
        ([trial(1, RUNNING)], StartTrials(1)),
        ([trial(1, RUNNING), trial(2, JobState.QUEUED)], Wait()),
        ([trial(1, OK, 0.5), trial(2, RUNNING)], StartTrials(1)),
        ([trial(number, OK, 0.5) for number in range(1, 8)], StartTrials(1)),
        ([*(trial(number, OK, 0.5) for number in range(1, 8)), trial(8, RUNNING)], Wait()),
        ([trial(number, OK, 0.5) for number in range(1, 9)], Become(state=OK)),
    ],
)
def test_trials_start_up_to_the_limits_and_the_job_ends_with_the_last(trials: list[Trial], action: object) -> None:
    assert decide(tuning_job(), trials) == action


def test_a_trial_whose_metrics_are_not_read_yet_still_takes_its_place() -> None:
    unread = replace(trial(1, OK), outcome=None)
    assert decide(tuning_job(), [unread, trial(2, RUNNING)]) == Wait()


def test_a_space_without_further_points_ends_the_search() -> None:
    assert decide(tuning_job(), [trial(1, OK, 0.5), trial(2, RUNNING)], exhausted=True) == Wait()
    assert decide(tuning_job(), [trial(1, OK, 0.5)], exhausted=True) == Become(state=OK)


@pytest.mark.parametrize(
    ("state", "trials", "following"),
    [
        (JobState.QUEUED, [trial(1, JobState.PREPARING)], JobState.PREPARING),
        (JobState.PREPARING, [trial(1, RUNNING)], RUNNING),
        (JobState.PREPARING, [trial(1, BAD)], RUNNING),
    ],
)
def test_the_state_of_the_job_follows_from_its_trials(
    state: JobState, trials: list[Trial], following: JobState
) -> None:
    assert decide(tuning_job(state), trials) == Become(state=following)


def test_a_job_waits_in_the_queue_as_long_as_its_trials_do() -> None:
    assert decide(tuning_job(JobState.QUEUED), [trial(1, JobState.QUEUED), trial(2, JobState.QUEUED)]) == Wait()


def test_a_cancelled_job_cancels_its_trials_first() -> None:
    job = tuning_job(JobState.CANCELLING)
    assert decide(job, [trial(1, OK, 0.5), trial(2, RUNNING)]) == CancelTrials()
    assert decide(job, [trial(1, OK, 0.5), replace(trial(2, JobState.CANCELLED), outcome=None)]) == Wait()
    assert decide(job, [trial(1, OK, 0.5), trial(2, JobState.CANCELLED)]) == Become(state=JobState.CANCELLED)


def test_the_search_has_a_time_limit() -> None:
    job = tuning_job(limit="60s")
    assert decide(job, [trial(1, RUNNING), trial(2, RUNNING)], now_us=60 * SECOND) == Wait()
    assert decide(job, [trial(1, RUNNING)], now_us=61 * SECOND) == CancelTrials()
    action = decide(job, [trial(1, JobState.CANCELLED)], now_us=61 * SECOND)
    assert isinstance(action, Become)
    assert action.failure is not None
    assert (action.state, action.failure.cause) == (JobState.CANCELLED, FailureCause.TIME_LIMIT)


class TestFailures:
    def test_five_before_the_first_success_end_the_job_with_their_cause(self) -> None:
        job = tuning_job(maxTrials=20)
        failed = [trial(number, BAD) for number in range(1, 6)]
        assert decide(job, failed[:4]) == StartTrials(2)
        assert decide(job, [*failed, trial(6, RUNNING)]) == CancelTrials()
        action = decide(job, failed)
        assert isinstance(action, Become)
        assert action.failure is not None
        assert action.state is JobState.FAILED
        assert action.failure.cause is FailureCause.TRIALS_FAILED
        assert action.failure.message.startswith("5 trials failed. 5 of them alike, such as trial 1.")
        assert "ValueError: no data" in action.failure.message

    def test_a_success_in_between_goes_on(self) -> None:
        job = tuning_job(maxTrials=20)
        trials = [trial(1, OK, 0.1), *(trial(number, BAD) for number in range(2, 7))]
        assert decide(job, trials) == StartTrials(2)

    def test_a_success_that_comes_while_trials_are_cancelled_does_not_revive_the_job(self) -> None:
        job = tuning_job(maxTrials=20)
        trials = [*(trial(number, BAD) for number in range(1, 6)), trial(6, OK, 0.1)]
        action = decide(job, trials)
        assert isinstance(action, Become)
        assert action.state is JobState.FAILED

    def test_more_than_half_end_the_job(self) -> None:
        trials = [trial(1, OK, 0.1), *(trial(number, BAD) for number in range(2, 6))]
        assert decide(tuning_job(), trials) == StartTrials(2)
        action = decide(tuning_job(), [*trials, trial(6, BAD)])
        assert isinstance(action, Become)
        assert action.state is JobState.FAILED

    def test_max_failed_trials_replaces_both_rules(self) -> None:
        job = tuning_job(maxFailedTrials=2)
        assert decide(job, [trial(1, BAD)]) == StartTrials(2)
        action = decide(job, [trial(1, BAD), trial(2, BAD)])
        assert isinstance(action, Become)
        assert action.state is JobState.FAILED
        many = tuning_job(maxFailedTrials=8)
        assert decide(many, [trial(number, BAD) for number in range(1, 8)]) == StartTrials(1)

    def test_a_job_without_any_success_fails_in_the_end(self) -> None:
        action = decide(tuning_job(maxTrials=1), [trial(1, BAD)])
        assert isinstance(action, Become)
        assert action.state is JobState.FAILED


class TestAMissingMetric:
    def test_is_said_after_the_first_trial_with_the_tags_there_were(self) -> None:
        first = trial(1, outcome=TrialOutcome(tags=("loss", "epoch_accuracy")))
        assert decide(tuning_job(hyperparameterMetricTag="accuracy"), [first, trial(2, RUNNING)]) == CancelTrials()
        action = decide(tuning_job(hyperparameterMetricTag="accuracy"), [first])
        assert isinstance(action, Become)
        assert action.failure is not None
        assert action.failure.cause is FailureCause.METRIC_MISSING
        for part in ("Trial 1", "'accuracy'", "'loss', 'epoch_accuracy'", "The nearest is 'epoch_accuracy'"):
            assert part in action.failure.message

    def test_of_a_later_trial_ends_nothing(self) -> None:
        assert decide(tuning_job(), [trial(1, OK, 0.5), trial(2, OK)]) == StartTrials(2)

    def test_that_is_not_finite_ends_nothing(self) -> None:
        assert decide(tuning_job(), [trial(1, OK, outcome=TrialOutcome(diverged=True))]) == StartTrials(2)

    def test_counts_as_a_failed_trial_where_a_number_of_these_is_allowed(self) -> None:
        job = tuning_job(maxFailedTrials=2)
        assert decide(job, [trial(1, OK)]) == StartTrials(2)
        action = decide(job, [trial(1, OK), trial(2, OK)])
        assert isinstance(action, Become)
        assert action.state is JobState.FAILED

    @pytest.mark.parametrize(
        ("tag", "tags", "nearest"),
        [
            ("accuracy", ("loss", "epoch_accuracy"), "epoch_accuracy"),
            ("acuracy", ("loss", "accuracy", "rate"), "accuracy"),
            ("training/hptuning/metric", ("a/metric", "b"), "a/metric"),
            ("x", ("something",), "something"),
        ],
    )
    def test_has_a_nearest_tag(self, tag: str, tags: tuple[str, ...], nearest: str) -> None:
        assert nearest_tag(tag, tags) == nearest


class TestTrials:
    def test_the_best_comes_first_and_those_without_a_value_last(self) -> None:
        trials = [trial(1, OK, 0.1), trial(2, RUNNING), trial(3, OK, 0.9, 0.3), trial(4, BAD, 0.8), trial(5, OK)]
        tuning = tuning_job().tuning
        assert tuning is not None
        assert [each.number for each in best_first(trials, tuning)] == [4, 3, 1, 2, 5]
        smaller = tuning_job(goal="MINIMIZE").tuning
        assert smaller is not None
        assert [each.number for each in best_first(trials, smaller)] == [1, 3, 4, 2, 5]

    def test_one_that_was_stopped_early_has_succeeded_if_it_has_a_value(self) -> None:
        stopped = trial(1, JobState.CANCELLED, 0.5, stopped="It was slow.")
        assert (stopped.state, stopped.succeeded, stopped.stopped_early) == (OK, True, True)
        empty = trial(1, JobState.CANCELLED, stopped="It was slow.")
        assert (empty.state, empty.succeeded, empty.stopped_early) == (JobState.CANCELLED, False, False)

    def test_many_measurements_are_thinned_out_between_the_first_and_the_last(self) -> None:
        many = [TrialMeasurement(number, number, float(number)) for number in range(10_000)]
        kept = thinned(many)
        assert len(kept) == MAX_MEASUREMENTS
        assert (kept[0], kept[-1]) == (many[0], many[-1])
        assert list(kept) == sorted(kept)

    def test_an_outcome_is_read_as_it_was_written(self) -> None:
        outcome = TrialOutcome(measurements=(TrialMeasurement(1, 2, 0.5),), source="eval", diverged=True, tags=("a",))
        assert TrialOutcome.parse(outcome.body()) == outcome

    def test_its_job_has_its_values_after_the_user_s_and_a_folder_of_its_own(self) -> None:
        job = trial_job(tuning_job(), 3, {"x": "0.25", "kind": "a b"}, now_us=7)
        assert job.training.args == ("--x", "9", "--x", "0.25", "--kind", "a b")
        assert job.training.job_dir == "gs://b/out/3"
        assert (job.id, job.parent, job.trial, job.replicas) == ("j.trial-3", "j", 3, 1)
        assert job.tuning is None
        assert job.training.tuning is not None

    def test_the_values_go_to_every_container(self) -> None:
        configs = {
            "masterConfig": {"imageUri": "image:1", "containerArgs": ["m"]},
            "workerConfig": {"containerCommand": ["run"]},
        }
        parent = tuning_job()
        containers = Training.parse({**parent.training.input, "args": [], **configs})
        job = trial_job(replace(parent, workload=containers), 1, {"x": "1"}, now_us=0)
        assert job.training.containers["master"].args == ("m", "--x", "1")
        assert job.training.containers["worker"].args == ("--x", "1")
        assert job.training.containers["ps"].args == ("--x", "1")


def test_bounds_may_be_texts_with_exponents() -> None:
    """YAML reads `1e-4`, without a dot, as a text, and gcloud sends it so."""
    rate = {"parameterName": "x", "type": "DOUBLE", "minValue": "1e-4", "maxValue": "1E+1"}
    spec = HYPERPARAMETERS({"params": [rate]}, "hyperparameters")
    [parameter] = Tuning.parse(spec).space.parameters
    assert (parameter.minimum, parameter.maximum) == (0.0001, 10.0)


def test_a_search_follows_what_people_change() -> None:
    job, running = tuning_job(), [trial(1, JobState.RUNNING), trial(2, JobState.RUNNING)]
    ended = [trial(number, JobState.SUCCEEDED, 0.5) for number in range(1, 9)]

    def action(trials: Sequence[Trial], steering: Steering, *, exhausted: bool = False) -> object:
        return plan(job, trials, exhausted=exhausted, now_us=SECOND, steering=steering)

    assert action(running, Steering()) == Wait()
    assert action(running, Steering(max_parallel=5)) == StartTrials(3)
    assert action(running, Steering(max_parallel=1)) == Wait()
    assert action(ended, Steering()) == Become(state=JobState.SUCCEEDED)
    assert action(ended, Steering(max_trials=9)) == StartTrials(1)
    assert action(ended, Steering(max_trials=3)) == Become(state=JobState.SUCCEEDED)
    own = (OwnPoint(1, {"x": 0.1}),)
    assert action(ended, Steering(max_trials=9, points=own), exhausted=True) == StartTrials(1)


def test_a_finished_search_keeps_what_it_has() -> None:
    job, finish = tuning_job(), Steering(finish="Finished by ana.")
    running = [trial(1, JobState.SUCCEEDED, 0.5), trial(2, JobState.RUNNING)]
    stopping = [trial(1, JobState.SUCCEEDED, 0.5), trial(2, JobState.RUNNING, stopped="Finished by ana.")]
    stopped = [trial(1, JobState.CANCELLED, 0.5, stopped="Finished by ana.")]
    valueless = [trial(1, JobState.CANCELLED, stopped="Finished by ana."), trial(2, JobState.FAILED)]
    actions = [
        plan(job, trials, exhausted=False, now_us=SECOND, steering=finish)
        for trials in (running, stopping, stopped, valueless, [])
    ]
    cancelled = Become(state=JobState.CANCELLED, failure=Failure(cause=FailureCause.CANCELLED))
    assert actions == [
        *(StopTrials("Finished by ana."), Wait(), Become(state=JobState.SUCCEEDED)),
        *(cancelled, cancelled),
    ]
