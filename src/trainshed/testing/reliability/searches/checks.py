"""What must be true of a search that has ended, whatever was killed while it ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from trainshed.domain.tuning.hyperparameters import Tuning
from trainshed.domain.tuning.search import MeasuredPoint, SearchRequest
from trainshed.engines.local.search_process import SearchProcess
from trainshed.testing.reliability.checker import Violation
from trainshed.testing.reliability.stamps import Life

STEPS = 6  #: that a trial reports


def check_search(
    job: Mapping[str, Any],
    trials: Sequence[Mapping[str, Any]],
    lives: Sequence[Life],
    *,
    parallel: int,
    kills: Mapping[str, int],
) -> list[Violation]:
    """Return what is wrong with one search. `kills` counts those of each trial, by the id of its job."""
    name = job["jobId"]
    found = _accounts(job, trials)
    if found:
        return found
    for trial in trials:
        trial_job = f"{name}.trial-{trial['trial']}"
        processes = [life for life in lives if life.job == trial_job]
        found += _launches(trial_job, processes, kills.get(trial_job, 0))
        found += _measurements(trial_job, trial)
    return found + _at_a_time(name, lives, parallel)


def check_searches(lives: Sequence[Life], jobs: Mapping[str, int]) -> list[Violation]:
    """Return a violation for each process of a trial that no search knows."""
    strangers = {life.job for life in lives if life.job.rpartition(".trial-")[0] not in jobs}
    return [Violation("lost", f"{each} ran, and its search is not there") for each in sorted(strangers)]


def _accounts(job: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> list[Violation]:
    """Each number is there once, each trial has succeeded, and the job's own answer has the same trials."""
    name, output = job["jobId"], job["trainingOutput"]
    wanted = list(range(1, int(job["trainingInput"]["hyperparameters"]["maxTrials"]) + 1))
    numbers = [trial["trial"] for trial in trials]
    found = []
    if job["state"] != "SUCCEEDED":
        found.append(Violation("lost", f"{name} is {job['state']}: {job.get('errorMessage')}"))
    if sorted(numbers) != wanted:
        count = "doubled" if len(numbers) > len(set(numbers)) or len(numbers) > len(wanted) else "lost"
        found.append(Violation(count, f"{name} has the trials {numbers}, not {wanted}"))
    if sorted(int(trial["trialId"]) for trial in output["trials"]) != sorted(numbers):
        found.append(Violation("lost", f"the answer of {name} has other trials than its list"))
    if output["completedTrialCount"] != str(len(wanted)):
        found.append(Violation("lost", f"{name} counts {output['completedTrialCount']} trials"))
    for trial in trials:
        if trial["state"] != "SUCCEEDED":
            text = f"trial {trial['trial']} of {name} is {trial['state']}: {trial['reason']}"
            found.append(Violation("lost", text))
    points = [trial["hyperparameters"]["x"] for trial in trials]
    if len(set(points)) < len(points):
        found.append(Violation("doubled", f"{name} tried a point twice: {points}"))
    return found


def _launches(trial_job: str, processes: Sequence[Life], kills: int) -> list[Violation]:
    """A trial has one process at a time, one that came to its end, and no more than were killed besides."""
    found = []
    for first, second in pairwise(processes):
        if first.last_s >= second.began_s:
            found.append(Violation("doubled", f"{trial_job} runs as pid {first.pid} and as pid {second.pid}"))
    ended = sum(life.stopped for life in processes)
    if ended != 1:  # a process may be killed behind its last stamp
        found += [Violation("doubled" if ended else "lost", f"{ended} processes of {trial_job} ended")] * (
            not ended or ended > 1 + kills
        )
    if len(processes) > 1 + kills:
        found.append(Violation("doubled", f"{trial_job} was launched {len(processes)} times, and killed {kills} times"))
    return found


def _measurements(trial_job: str, trial: Mapping[str, Any]) -> list[Violation]:
    """All steps were read, and the last value is the final metric."""
    x = float(trial["hyperparameters"]["x"])
    steps = {int(each["step"]) for each in trial["measurements"]}
    found = []
    if steps != set(range(1, STEPS + 1)):
        found.append(Violation("lost", f"{trial_job} has values of the steps {sorted(steps)}, and reported {STEPS}"))
    final = trial["finalMetric"]
    if final is None or int(final["step"]) != STEPS or abs(final["value"] + (x - 0.3) ** 2) > 1e-12:
        found.append(Violation("lost", f"{trial_job} with x={x} has the final metric {final}"))
    return found


def check_suggestions(job: Mapping[str, Any], trials: Sequence[Mapping[str, Any]], *, seed: str) -> list[Violation]:
    """Return a violation if a point is not what the search gives for the trials before it, asked again.

    Only for a search of one trial at a time: others depend on what ran.
    """
    tuning, search = Tuning.parse(job["trainingInput"]["hyperparameters"]), SearchProcess()
    known: list[MeasuredPoint] = []
    found = []
    try:
        for trial in sorted(trials, key=lambda each: int(each["trial"])):
            request = SearchRequest(
                space=tuning.space,
                algorithm=tuning.algorithm,
                goals=(tuning.goal,),
                observations=tuple(known),
                pending=(),
                seed=seed,
                number=trial["trial"],
            )
            [point] = search.suggest(request).points
            texts = tuning.space.texts(point)
            if texts != trial["hyperparameters"]:
                text = f"trial {trial['trial']} of {job['jobId']} has {trial['hyperparameters']}, asked again {texts}"
                found.append(Violation("lost", text))
                break
            final = trial["finalMetric"]
            known.append(MeasuredPoint(point=point, values=(final["value"],) if final else None))
    finally:
        search.close()
    return found


def _at_a_time(name: str, lives: Sequence[Life], parallel: int) -> list[Violation]:
    """Never do more trials run than the search allows."""
    own = [life for life in lives if life.job.rpartition(".trial-")[0] == name]
    most = max(
        (len({each.job for each in own if each.began_s <= life.began_s <= each.last_s}) for life in own), default=0
    )
    return [Violation("doubled", f"{most} trials of {name} ran at a time")] if most > parallel else []
