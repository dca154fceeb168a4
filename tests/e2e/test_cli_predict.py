"""From an exported model to predictions, with the lines of the documents, on real models and real hosts."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.processes.shells import Shell
from trainshed.testing.workloads.saved_models import saved_models

with warnings.catch_warnings():  # httplib2 still calls pyparsing by its old names
    warnings.simplefilter("ignore", DeprecationWarning)
    from googleapiclient import discovery

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
PROJECT = "predict-course"
BUCKET = f"{PROJECT}-ml"
DIGITS = [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]  #: what the first ten test images show


def by_google_client(server: RunningServer, model: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer that google-api-python-client gets."""
    credentials = Credentials(server.token)  # type: ignore[no-untyped-call]
    options = {"api_endpoint": server.url}
    with discovery.build("ml", "v1", credentials=credentials, client_options=options) as ml:
        answer: dict[str, Any] = ml.projects().predict(name=f"projects/{PROJECT}/models/{model}", body=body).execute()
    return answer


@pytest.fixture(scope="module")
def course(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    shell = Shell(framework_server, tmp_path_factory.mktemp("course"), PROJECT)
    shell.env["MNIST_BUCKET"] = BUCKET
    shell("buckets", "mb", f"gs://{BUCKET}")
    return shell


@pytest.fixture(scope="module")
def digits(course: Shell) -> str:
    """The job that trained MNIST, as far as a bucket shows it: a model in the folder that the sample exports to.

    test_demo.py goes from a training to its predictions.
    """
    exports = course.server.home / "buckets" / BUCKET / "mnist_job" / "export" / "Servo"
    shutil.copytree(saved_models() / "digits", exports / "1794781101")
    return "mnist_job"


@pytest.fixture(scope="module")
def deployed(course: Shell, digits: str) -> tuple[str, str]:
    """The first document from `models create` to the table, word for word."""
    return course.bash(
        """
    MODEL_NAME=MNIST

    gcloud ml-engine models create --regions us-central1 ${MODEL_NAME}
    VERSION_NAME=v1

    ORIGIN=$(gsutil ls gs://${MNIST_BUCKET}/${JOB_NAME}/export/Servo | tail -1)

    gcloud ml-engine versions create \
        --origin ${ORIGIN} \
        --runtime-version=1.2 \
        --model ${MODEL_NAME} \
        ${VERSION_NAME}

    gcloud ml-engine versions set-default --model ${MODEL_NAME} ${VERSION_NAME} > default.yaml

    python "$SAMPLES/mnist_async/scripts/make_request.py" >&2

    gcloud ml-engine predict --model ${MODEL_NAME} --json-instances request.json
        """,
        JOB_NAME=digits,
        SAMPLES=str(SAMPLES),
    )


def rows(table: str) -> list[tuple[int, list[float]]]:
    """The table of the first document, read as its notebook does: digit, and what stands in brackets."""
    found = [re.fullmatch(r"(\d)        \[(.+)\]", line) for line in table.splitlines()[1:]]
    return [(int(row[1]), [float(word) for word in row[2].split(", ")]) for row in found if row]


@pytest.mark.timeout(900)
def test_the_first_documents_steps_end_with_its_table(course: Shell, deployed: tuple[str, str]) -> None:
    assert deployed[0].splitlines()[0] == "CLASSES  PROBABILITIES"
    found = rows(deployed[0])
    assert len(found) == len(deployed[0].splitlines()) - 1 == 10
    assert sum(row[0] == digit for row, digit in zip(found, DIGITS, strict=True)) >= 8
    for digit, probabilities in found:
        assert len(probabilities) == 10
        assert max(probabilities) == probabilities[digit]
        assert abs(sum(probabilities) - 1) < 1e-4
    said = deployed[1]
    assert f"Created ai platform model [projects/{PROJECT}/models/MNIST].\n" in said
    assert re.search(r"^Creating version \(this might take a few minutes\)\.\.\.\.*(\n.*)*done\.$", said, re.MULTILINE)
    default = (course.folder / "default.yaml").read_text()
    assert "isDefault: true\n" in default
    assert f"name: projects/{PROJECT}/models/MNIST/versions/v1\n" in default


@pytest.mark.timeout(900)
def test_lists_and_descriptions_of_what_is_deployed(course: Shell, deployed: tuple[str, str], digits: str) -> None:
    assert course("models", "list")[0] == "NAME   DEFAULT_VERSION_NAME\nMNIST  v1\n"
    uri = course("buckets", "ls", f"gs://{BUCKET}/{digits}/export/Servo")[0].split()[-1]
    width = len(uri)
    assert course("versions", "list", "--model", "MNIST")[0] == (
        f"NAME  {'DEPLOYMENT_URI':{width}}  STATE\nv1    {uri}  READY\n"
    )
    described, said = course("versions", "describe", "v1", "--model", "MNIST")
    assert f"deploymentUri: {uri}\n" in described
    assert "runtimeVersion: '1.2'\n" in described
    assert "state: READY\n" in described
    assert "OpenVINO" in said
    assert re.search(r"differ.* \d", said)
    assert "2.21" in said  # what stands in for a runtime that is too old to serve


@pytest.mark.timeout(900)
def test_one_answer_whoever_asks_and_however(course: Shell, deployed: tuple[str, str]) -> None:
    body = {"instances": [json.loads(line) for line in (course.folder / "request.json").read_text().splitlines()]}
    by_client = by_google_client(course.server, "MNIST", body)
    assert [(row["classes"], row["probabilities"]) for row in by_client["predictions"]] == rows(deployed[0])
    by_json = course("predict", "--model", "MNIST", "--json-instances", "request.json", "--format", "json")[0]
    assert json.loads(by_json) == by_client
    (course.folder / "body.json").write_text(json.dumps(body))
    for words in (
        ("predict", "--model", "MNIST", "--version", "v1", "--json-request", "body.json"),
        ("ai-platform", "predict", "--model", "MNIST", "--json-instances", "request.json", "--region=global"),
        ("beta", "ml", "predict", "--model=MNIST", "--json-instances=request.json", "--signature-name=prediction"),
    ):
        assert course(*words)[0] == deployed[0]
    line = course("models", "curl", "MNIST", "--json-instances", "request.json")[0]
    assert "$(trainshed auth print-access-token)" in line
    assert course.server.token not in line
    assert json.loads(course.bash(line.replace("curl", "curl -sS"))[0]) == by_client


@pytest.mark.timeout(900)
def test_a_model_on_this_machine_answers_without_a_server_as_its_host_does(
    course: Shell, deployed: tuple[str, str]
) -> None:
    folder = course("buckets", "ls", f"gs://{BUCKET}/mnist_job/export/Servo")[0].split()[-1]
    local = course("local", "predict", "--model-dir", folder, "--json-instances", "request.json")[0]
    for (digit, ours), (other, theirs) in zip(rows(local), rows(deployed[0]), strict=True):
        assert digit == other
        assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) < 1e-5
    ask = ("local", "predict", "--model-dir", folder)
    _, said = course(*ask, "--json-instances", "-", stdin='{"wrong": [1]}\n', status=1)
    assert "wrong" in said
    assert "(Error code: 1)" in said
    _, said = course(*ask, "--text-instances", "-", stdin="[0.0]\n", status=1)
    assert "(Error code: " in said  # texts are not what this model takes


@pytest.mark.timeout(900)
def test_a_wrong_request_is_shown_as_the_server_refused_it(course: Shell, deployed: tuple[str, str]) -> None:
    ask = ("predict", "--model", "MNIST", "--json-instances", "-")
    out, said = course(*ask, stdin='{"inputs": [1, 2, 3]}\n', status=1)
    assert out == ""
    assert said.startswith('ERROR: (trainshed.predict) HTTP request failed. Response: {"error":')
    assert "784" in said
    assert "inputs" in said
    _, said = course("predict", "--model", "nothing", "--json-instances", "-", stdin="1\n", status=1)
    assert '"code":404' in said.replace(" ", "")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("model", "framework", "server_says", "close"),
    [("linear", "SCIKIT_LEARN", "scikit-learn", 1e-9), ("boosted", "XGBOOST", "XGBoost", 0.01)],
)
def test_tabular_models_from_a_local_folder(
    course: Shell, model: str, framework: str, server_says: str, close: float
) -> None:
    folder = saved_models() / model
    course("models", "create", model)
    create = ("versions", "create", "v1", "--model", model, "--origin", folder, "--framework", framework)
    course(*create, "--runtime-version", "2.21", "--staging-bucket", f"gs://{BUCKET}")
    [uri] = course("versions", "list", "--model", model, "--format", "value(deploymentUri)")[0].split()
    assert re.fullmatch(rf"gs://{BUCKET}/[0-9a-f]{{64}}/", uri)
    assert server_says in course("versions", "describe", "v1", "--model", model)[1]
    instances = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    lines = "".join(f"{instance}\n" for instance in instances)
    printed = course("predict", "--model", model, "--json-instances", "-", stdin=lines)[0]
    assert re.fullmatch(r"\[.*, .*, .*\]\n", printed)
    assert json.loads(printed) == pytest.approx([0.0, 1.0, 3.0], abs=close)
    answer = by_google_client(course.server, model, {"instances": instances})
    assert answer["predictions"] == json.loads(printed)
    local = course("local", "predict", "--model-dir", folder, "--json-instances", "-", stdin="[1.0, 1.0, 0.0]\n")[0]
    assert json.loads(local) == pytest.approx([3.0], abs=close)
