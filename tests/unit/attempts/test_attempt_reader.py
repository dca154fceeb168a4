"""The current attempt of a job, found by the job."""

from __future__ import annotations

from pathlib import Path

import orjson

from trainshed.attempts.attempt_reader import AttemptFolders
from trainshed.attempts.batch_progress import BatchProgress
from trainshed.domain.jobs.batch_prediction import BatchPrediction
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.training import Training
from trainshed.domain.jobs.workload import Workload

PROGRESS = {"predictions": 3, "errors": 1, "read": 5, "bytes": 10}


TRAINING = Training.parse({})
PREDICTION = BatchPrediction.parse(
    {"inputPaths": ["gs://mine/rows"], "outputPath": "gs://mine/out", "dataFormat": "JSON"}
)


def job(workload: Workload, *, attempt: int) -> Job:
    return Job(project="p", id="j", workload=workload, created_us=1, attempt=attempt)


def test_the_current_attempt_is_read_and_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "p" / "j" / "2" / "prediction"
    folder.mkdir(parents=True)
    (folder / "progress.json").write_bytes(orjson.dumps(PROGRESS))
    attempts = AttemptFolders(tmp_path)
    assert attempts.batch_progress(job(PREDICTION, attempt=2)) == BatchProgress(**PROGRESS)
    assert attempts.batch_progress(job(PREDICTION, attempt=1)) is None
    assert attempts.batch_progress(job(TRAINING, attempt=2)) is None
    assert list(attempts.restarts(job(TRAINING, attempt=2))) == []
    assert list(attempts.hangs(job(TRAINING, attempt=2))) == []
