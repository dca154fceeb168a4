"""From words to a job's body: what gcloud sends for the same words is what we send."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trainshed.cli import main
from trainshed.cli.jobs.submit_training import brief, training
from trainshed.cli.jobs.training_body import check_flags, job_body
from trainshed.client.submission import check_runnable, read_config
from trainshed.errors import InvalidArgumentError

PACKAGE = "gs://bkt/z.whl"


def body(*words: str, config: dict[str, Any] | None = None, packages: tuple[str, ...] = (PACKAGE,)) -> dict[str, Any]:
    """What would be sent for a command line; uploads left out."""
    context = training.make_context("training", ["j1", *words])
    flags = dict(context.params) | {"project": "my-project"}
    check_flags(flags)
    made = job_body(
        flags.pop("job"), flags=flags, config=config or {}, package_uris=packages, user_args=context.meta["user_args"]
    )
    check_runnable(made)
    return made


def test_the_shortest_job() -> None:
    assert body("--module-name", "trainer.task") == {
        "jobId": "j1",
        "trainingInput": {"packageUris": [PACKAGE], "pythonModule": "trainer.task", "region": "us-central1"},
    }


def test_every_flag_has_its_place() -> None:
    words = (
        *("--module-name", "trainer.task", "--scale-tier", "custom", "--master-machine-type", "large"),
        *("--worker-count", "2", "--worker-machine-type", "standard", "--worker-image-uri", "w"),
        *("--parameter-server-count", "1", "--parameter-server-machine-type", "small"),
        *("--master-accelerator", "count=1,type=nvidia-tesla-k80", "--use-chief-in-tf-config", "true"),
        *("--kms-key", "k", "--kms-keyring", "r", "--kms-location", "l", "--enable-web-access"),
        *("--runtime-version", "2.1", "--python-version", "3.7", "--job-dir", "gs://bkt/j1", "--region", "r1"),
        *("--labels", "a=b,c=d", "--service-account", "me@x", "--", "--data_dir=gs://bkt/data", "--max_steps", "10"),
    )
    assert body(*words) == {
        "jobId": "j1",
        "labels": {"a": "b", "c": "d"},
        "trainingInput": {
            "args": ["--data_dir=gs://bkt/data", "--max_steps", "10"],
            "enableWebAccess": True,
            "encryptionConfig": {"kmsKeyName": "projects/my-project/locations/l/keyRings/r/cryptoKeys/k"},
            "jobDir": "gs://bkt/j1",
            "masterConfig": {"acceleratorConfig": {"count": "1", "type": "NVIDIA_TESLA_K80"}},
            "masterType": "large",
            "packageUris": [PACKAGE],
            "parameterServerCount": "1",
            "parameterServerType": "small",
            "pythonModule": "trainer.task",
            "pythonVersion": "3.7",
            "region": "r1",
            "runtimeVersion": "2.1",
            "scaleTier": "CUSTOM",
            "serviceAccount": "me@x",
            "useChiefInTfConfig": True,
            "workerConfig": {"imageUri": "w"},
            "workerCount": "2",
            "workerType": "standard",
        },
    }


def test_flags_win_over_the_config_file_and_the_rest_of_it_stays() -> None:
    config = {
        "jobId": "other",
        "labels": {"x": "y"},
        "trainingInput": {
            "scaleTier": "STANDARD_1",
            "region": "r1",
            "args": ["a"],
            "x": 3,
            "pythonModule": "m",
        },
    }
    made = body("--scale-tier", "BASIC", "--labels", "q=r", "--", "--b", config=config)
    assert made == {
        "jobId": "j1",
        "labels": {"x": "y", "q": "r"},
        "trainingInput": {
            "scaleTier": "BASIC",
            "region": "r1",
            "args": ["--b"],
            "x": 3,
            "pythonModule": "m",
            "packageUris": [PACKAGE],
        },
    }


def test_user_args_are_passed_on_as_they_are() -> None:
    made = body("--module-name", "m", "--", "--project", "x", "--", "-h", "", "--help")
    assert made["trainingInput"]["args"] == ["--project", "x", "--", "-h", "", "--help"]


def test_a_job_of_its_own_image_needs_neither_module_nor_packages() -> None:
    made = body("--master-image-uri", "image", packages=())
    assert made["trainingInput"]["masterConfig"] == {"imageUri": "image"}


@pytest.fixture
def submit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """`trainshed jobs submit training j1 ...` with no server at all: what is wrong is found before one is needed."""
    for name in list(os.environ):
        if name.startswith("TRAINSHED_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    Path("trainer").mkdir()
    Path("trainer/__init__.py").touch()
    Path("nopackage").mkdir()

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(main, ["jobs", "submit", "training", "j1", *words], prog_name="trainshed")

    return invoke


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (
            ("--module-name", "m", "--package-path", "trainer"),
            1,
            "If local packages are provided, the `--staging-bucket` or `--job-dir` flag must be given.",
        ),
        (("--module-name", "m", "--staging-bucket", "gs://bkt"), 1, "Non-custom jobs must have packages."),
        (("--packages", PACKAGE), 1, "Non-custom jobs must have a module name"),
        (("--module-name", "m", "--staging-bucket", "gs://bkt", "--package-path", "nopackage"), 1, "`__init__.py`"),
        (("--module-name", "m", "--staging-bucket", "gs://bkt", "--package-path", "absent"), 1, "absent"),
        (("--staging-bucket", "gs://bkt/path"), 2, "Invalid bucket name [bkt/path]"),
        (("--job-dir", "/tmp/x"), 2, "Must be of form gs://bucket/object"),
        (
            ("--scale-tier", "what"),
            2,
            "Valid choices are [basic, basic-gpu, basic-tpu, custom, premium-1",
        ),
        (("--scale-tier", "custom"), 1, "--master-machine-type is required if scale-tier is set to `CUSTOM`."),
        (
            ("--master-image-uri", "x", "--runtime-version", "1.2"),
            1,
            "Only one of --master-image-uri, --runtime-version can be set.",
        ),
        (("--worker-count", "2"), 2, "argument --worker-machine-type: Must be specified."),
        (("--parameter-server-machine-type", "x"), 2, "argument --parameter-server-count: Must be specified."),
        (("--stream-logs", "--async"), 2, "At most one of --async | --stream-logs can be specified."),
        (("--module-name", "m", "--packages", PACKAGE, "--master-accelerator", "count=1"), 2, "--master-accelerator"),
        (("--module-name", "m", "--packages", PACKAGE, "--kms-keyring", "r"), 2, "argument --kms-key"),
        (("--module-name", "m", "--packages", PACKAGE, "--kms-key", "k"), 2, "argument --kms-location"),
        (("--config", "nofile.yaml"), 1, "Failed to load YAML from [nofile.yaml]"),
        (("--packages", "a.tar.gz", "--staging-bucket", "gs://bkt"), 1, "Unable to read file [a.tar.gz]"),
        (("--module-name", "m", "--packages", PACKAGE), 1, "No Trainshed server is running"),
    ],
)
def test_what_is_wrong_is_said_with_gclouds_exit_status(
    submit: Any, words: tuple[str, ...], status: int, message: str
) -> None:
    done = submit(*words)
    assert message in done.stderr
    assert done.exit_code == status
    assert done.stderr.startswith("ERROR: (trainshed.jobs.submit.training) ")
    assert done.stdout == ""


@pytest.mark.parametrize("text", ["trainingInput: [", "- a list", "trainingInput: 3", "\x00"])
def test_a_config_file_that_holds_no_job_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(InvalidArgumentError, match=r"config\.yaml"):
        read_config(path)


def test_versions_labels_and_arguments_in_a_config_file_stay_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "labels: {run: 1, on: yes}\n"
        "trainingInput:\n"
        "  runtimeVersion: 1.10\n"
        "  pythonVersion: 3.10\n"
        "  workerCount: 2\n"
        "  useChiefInTfConfig: true\n"
        "  args: [--steps, 10, --rate, 1e-3]\n"
    )
    assert read_config(path) == {
        "labels": {"run": "1", "on": "yes"},
        "trainingInput": {
            "runtimeVersion": "1.10",
            "pythonVersion": "3.10",
            "workerCount": 2,
            "useChiefInTfConfig": True,
            "args": ["--steps", "10", "--rate", "1e-3"],
        },
    }


def test_json_is_a_config_file_too_and_an_empty_one_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text('{"trainingInput": {"scaleTier": "BASIC"}}')
    assert read_config(path) == {"trainingInput": {"scaleTier": "BASIC"}}
    path.write_text("# nothing\n")
    assert read_config(path) == {}


def test_a_job_just_submitted_is_shown_by_its_id_and_state() -> None:
    assert brief({"jobId": "j", "state": "QUEUED", "createTime": "x", "startTime": None}) == {
        "jobId": "j",
        "state": "QUEUED",
    }


def test_an_engine_is_a_label() -> None:
    made = body("--module-name", "m", "--engine", "ray", "--labels", "a=b")
    assert made["labels"] == {"a": "b", "trainshed-engine": "ray"}
    config = {"labels": {"trainshed-engine": "ray"}}
    assert body("--module-name", "m", "--engine", "local", config=config)["labels"] == {"trainshed-engine": "local"}
    assert body("--module-name", "m", config=config)["labels"] == {"trainshed-engine": "ray"}
