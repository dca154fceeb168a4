"""What follows a search: a job that continues it, a job with the best values, the exports of a trial."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from trainshed.client.context import ClientContext, native_job_path
from trainshed.client.transport import segment
from trainshed.domain.names import trial_job_id
from trainshed.domain.tuning.trial_input import with_values
from trainshed.errors import FailedPreconditionError, InvalidArgumentError

_TIME_SUFFIX = re.compile(r"_\d{8}_\d{6}$")
#: of hyperparameters; the server takes what the search itself is from the job that is continued
_KEPT = ("maxParallelTrials", "maxFailedTrials", "enableTrialEarlyStopping")


def search_of(context: ClientContext, job: str) -> dict[str, Any]:
    """Return a tuning job with its trials. Raises `FailedPreconditionError` if the job has none."""
    body: dict[str, Any] = context.client.call("GET", f"{native_job_path(context, job)}/trials")
    return body


def chosen_trial(search: Mapping[str, Any], number: int | None) -> dict[str, Any]:
    """Return the trial of this number, or the best one. Raises `FailedPreconditionError` if there is none."""
    wanted = search["best"] if number is None else number
    for trial in search["trials"]:
        if trial["trial"] == wanted:
            return dict(trial)
    missing = "no trial with a final metric yet" if number is None else f"no trial {number}"
    raise FailedPreconditionError(f"Job {search['job']} has {missing}.")


def next_name(job: str) -> str:
    """Return a name for a job that follows another one: search_1 becomes search_1_20261116_034100."""
    return f"{_TIME_SUFFIX.sub('', job)}_{datetime.now():%Y%m%d_%H%M%S}"


def continued_job(
    earlier: Mapping[str, Any],
    name: str,
    *,
    max_trials: int,
    parallel: int | None = None,
    config: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a job that goes on with the search of an ended one, with its package, arguments and folder.

    Numbers of trials go on, so no folder is written twice. `config` is a Job whose fields come before the earlier
    one's; its hyperparameters may change the space.
    """
    changes = dict((config or {}).get("trainingInput") or {})
    before = _tuning_input(earlier)
    hyperparameters = {
        **{key: before["hyperparameters"][key] for key in _KEPT if key in before["hyperparameters"]},
        **(changes.pop("hyperparameters", None) or {}),
        "maxTrials": max_trials,
        "resumePreviousJobId": earlier["jobId"],
    }
    if parallel is not None:
        hyperparameters["maxParallelTrials"] = parallel
    return _job(earlier, name, {**before, **changes, "hyperparameters": hyperparameters}, config or {})


def trained_job(
    earlier: Mapping[str, Any], name: str, *, values: Mapping[str, str], job_dir: str | None = None
) -> dict[str, Any]:
    """Return a job that trains once, with the values of a trial. Its folder is below that of the search."""
    training = with_values(_tuning_input(earlier), values)
    del training["hyperparameters"]
    if job_dir is not None:
        training["jobDir"] = job_dir
    elif training.get("jobDir"):
        training["jobDir"] = f"{training['jobDir'].rstrip('/')}/{name}"
    return _job(earlier, name, training, {})


def trial_exports(context: ClientContext, job: str, number: int) -> list[dict[str, Any]]:
    """Return what a trial exported, the newest first. Raises `FailedPreconditionError` if that is nothing."""
    path = native_job_path(context, trial_job_id(job, number))
    exports: list[dict[str, Any]] = context.client.call("GET", f"{path}/exports")["exports"]
    if not exports:
        raise FailedPreconditionError(
            f"Trial {number} of job {job} exported no model that can be deployed. Train one with its values: "
            f"`trainshed tuning train {job} --trial {number}`."
        )
    return exports


def job_body(context: ClientContext, job: str) -> dict[str, Any]:
    """Return a job as in the API."""
    body: dict[str, Any] = context.client.call("GET", context.ml(f"jobs/{segment(job)}"))
    return body


def _tuning_input(job: Mapping[str, Any]) -> dict[str, Any]:
    training = job.get("trainingInput", {})
    if "hyperparameters" not in training:
        raise InvalidArgumentError(f"Job {job['jobId']} has no hyperparameters, and so no search to follow.")
    return copy.deepcopy(dict(training))


def _job(
    earlier: Mapping[str, Any], name: str, training: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any]:
    labels = {**earlier.get("labels", {}), **(config.get("labels") or {})}
    return {"jobId": name, "trainingInput": dict(training), **({"labels": labels} if labels else {})}
