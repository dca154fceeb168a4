"""The Python client against a real server: a training from submit to its end, buckets, and a model that answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import trainshed
from trainshed.errors import (
    AlreadyExistsError,
    CannotProceedError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    TrainshedError,
    UnauthenticatedError,
)
from trainshed.sdk import Trainshed
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.saved_models import saved_models

TASK = """
import argparse, pathlib, time
parser = argparse.ArgumentParser()
parser.add_argument("--job-dir")
parser.add_argument("--train_steps", type=int, default=3)
parser.add_argument("--wait", type=float, default=0)
parser.add_argument("--fail", default="")
args = parser.parse_args()
for step in range(1, args.train_steps + 1):
    print(f"Train [master/0], step {step}: loss: {1 / step:.3f}, accuracy: 0.5 (0.1 sec)", flush=True)
time.sleep(args.wait)
if args.fail:
    raise ValueError(args.fail)
if args.job_dir:
    out = pathlib.Path(args.job_dir)
    out.mkdir(parents=True, exist_ok=True)
    (out / "model.txt").write_text("trained")
"""


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client") / "trainer"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "task.py").write_text(TASK)
    return folder


@pytest.fixture
def ty(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trainshed]:
    """As in a script beside the server: the state folder tells the rest."""
    for name in ("TRAINSHED_URL", "TRAINSHED_TOKEN", "TRAINSHED_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRAINSHED_HOME", str(server.home))
    with trainshed.connect(project="python-client") as connected:
        yield connected


def test_a_training_from_submit_to_its_end(ty: Trainshed, trainer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bucket = ty.buckets.create("python-client", exist_ok=True)
    job = ty.jobs.submit(
        package_path=trainer,
        module_name="trainer.task",
        args={"train_steps": 4},
        runtime_version="python",
        scale_tier="basic",
        job_dir=f"{bucket.uri}/first",
        labels={"team": "vision"},
    )
    assert job.name.startswith("trainer_")
    job.watch()
    assert f"{job.name}  SUCCEEDED  step 4 of 4 (100 %), loss 0.25" in capsys.readouterr().out
    assert job.state == "SUCCEEDED"
    assert job.describe()["labels"] == {"team": "vision"}
    assert job.progress is not None
    assert job.progress.step == 4
    assert [point.value for point in job.metrics()["loss"]] == [1.0, 0.5, 0.333, 0.25]
    assert [line.message.partition(":")[0] for line in job.logs(replica="master-replica-0", grep="step 4")] == [
        "Train [master/0], step 4"
    ]
    with bucket.open("first/model.txt") as file:
        assert file.read() == "trained"
    assert "SUCCEEDED" in (job._repr_html_() or "")
    assert [found.name for found in ty.jobs.list(filter="labels.team=vision", limit=1)] == [job.name]
    assert ty.jobs.get(job.name).wait() is not None
    with pytest.raises(FailedPreconditionError):
        job.cancel()


def test_a_job_without_any_bucket_uses_one_of_the_projects_own_and_can_be_followed(
    ty: Trainshed, trainer: Path
) -> None:
    job = ty.jobs.submit(
        "followed",
        package_path=trainer,
        module_name="trainer.task",
        config={"trainingInput": {"runtimeVersion": "python", "args": ["--train_steps", "2"]}},
    )
    lines = [line.message for line in job.logs(follow=True)]
    assert any("step 2" in line for line in lines)
    [package] = job.describe()["trainingInput"]["packageUris"]
    assert package.startswith("gs://python-client-staging/followed/")


def test_a_job_that_fails_says_why_and_one_that_is_cancelled_that_it_was(ty: Trainshed, trainer: Path) -> None:
    common = {"package_path": trainer, "module_name": "trainer.task", "runtime_version": "python"}
    failed = ty.jobs.submit("failing", args={"fail": "no data"}, **common)  # type: ignore[arg-type]
    with pytest.raises(FailedPreconditionError, match=r"(?s)Job failing is FAILED.*no data"):
        failed.wait()
    assert failed.wait(check=False) is failed
    slow = ty.jobs.submit("slow", args={"wait": 600}, **common)  # type: ignore[arg-type]
    with pytest.raises(DeadlineExceededError, match="still"):
        slow.wait(timeout_s=0.1)
    slow.cancel()
    with pytest.raises(FailedPreconditionError, match="Job slow is CANCELLED"):
        slow.watch()


def test_errors_are_of_the_kinds_that_trainshed_has(ty: Trainshed) -> None:
    with pytest.raises(NotFoundError):
        ty.jobs.get("nobody")
    with pytest.raises(NotFoundError):
        ty.models.get("nobody")
    ty.models.create("taken", description="a name")
    with pytest.raises(AlreadyExistsError):
        ty.models.create("taken")
    assert [model.name for model in ty.models.list()] == ["taken"]
    assert "without versions" in (ty.models.get("taken")._repr_html_() or "")
    with pytest.raises(InvalidArgumentError, match="give either origin or job"):
        ty.models.deploy("taken")
    ty.models.get("taken").delete()
    with pytest.raises(NotFoundError):
        ty.models.get("taken").delete()


def test_files_go_into_buckets_and_come_back(ty: Trainshed, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    (folder / "one.csv").write_text("1\n")
    (folder / "deep" / "two.csv").write_text("2\n")
    bucket = ty.buckets.create("gs://python-client-files")
    assert ty.buckets.create("python-client-files", exist_ok=True).name == bucket.name
    with pytest.raises(AlreadyExistsError):
        ty.buckets.create("python-client-files")
    assert ty.buckets.get("python-client-files").uri in [found.uri for found in ty.buckets.list()]
    with pytest.raises(NotFoundError):
        ty.buckets.get("no-such-bucket-here")

    bucket.upload(folder)
    assert [found.uri for found in bucket.list("data/")] == [
        "gs://python-client-files/data/deep/two.csv",
        "gs://python-client-files/data/one.csv",
    ]
    assert bucket.folders("data") == ["gs://python-client-files/data/deep/"]
    back = tmp_path / "back"
    back.mkdir()
    bucket.download("data", back)
    assert (back / "data" / "deep" / "two.csv").read_text() == "2\n"

    with ty.buckets.open("gs://python-client-files/note.txt", "w") as file:
        file.write("grüße")
    with ty.buckets.open("gs://python-client-files/note.txt", "rb") as file:
        assert file.read() == "grüße".encode()
    with pytest.raises(ZeroDivisionError), bucket.open("half.txt", "w") as file:
        file.write("half")
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), bucket.open("half.txt", "wb") as file:
        file.write(b"half")
        raise ZeroDivisionError
    with pytest.raises(NotFoundError):
        bucket.open("half.txt")
    with pytest.raises(InvalidArgumentError, match="gs://BUCKET/NAME"):
        ty.buckets.open("gs://python-client-files", "r")


def test_a_token_and_an_address_are_enough(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path))
    with trainshed.connect(server.url, token=server.token, project="python-client") as ty:
        assert ty.jobs.list(limit=1) is not None
    with (
        trainshed.connect(server.url, token="ts_wrong", project="python-client") as stranger,
        pytest.raises(UnauthenticatedError),
    ):
        stranger.jobs.list()


def test_a_model_is_deployed_from_a_folder_asked_and_deleted(
    framework_server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with trainshed.connect(framework_server.url, token=framework_server.token, project="client-models") as ty:
        _deploy_ask_and_delete(ty, saved_models() / "dense", capsys)


def _deploy_ask_and_delete(ty: Trainshed, exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ty.models.deploy("scores", exported)
    assert "Version v1 of model scores is ready." in capsys.readouterr().out
    predictions = model.predict([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    assert [each["classes"] for each in predictions] == [0, 1]
    assert predictions[1]["scores"] == [-3.0, 4.0]
    with pytest.raises(TrainshedError):
        model.predict([["no number"]])

    ty.models.deploy("scores", model.versions[0].origin)
    assert [(each.name, each.state, each.is_default) for each in model.versions] == [
        ("v2", "READY", True),
        ("v1", "READY", False),
    ]
    model.set_default("v1")
    rollout = model.rollout("v2", steps=[100], step_s=0, min_requests=1)
    assert (rollout.state, [each.state for each in model.rollouts]) == ("RUNNING", ["RUNNING"])
    assert rollout.stop().state == "STOPPED"
    with pytest.raises(CannotProceedError, match="Stopped on request"):
        rollout.wait()
    rollout = model.rollout("v2", steps=[100], step_s=0, min_requests=1)
    model.predict([[1.0, 2.0, 3.0]])
    assert rollout.wait().state == "PROMOTED"
    assert model.default == "v2"
    model.set_default("v1")
    assert model.default == "v1"
    assert "v2" in (model._repr_html_() or "")
    with pytest.raises(FailedPreconditionError):
        model.delete()
    model.delete(with_versions=True)
    with pytest.raises(NotFoundError):
        ty.models.get("scores")
