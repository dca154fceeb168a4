"""google-api-python-client and gcloud, with only their endpoint changed, drive models and versions."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from trainshed.errors import AbortedError, UnavailableError
from trainshed.store.database import Database
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.deployments import FakeDeployments
from trainshed.testing.processes.gateway import RunningGateway
from trainshed.testing.processes.servers import Caller

with warnings.catch_warnings():  # httplib2 still calls pyparsing by its old names
    warnings.simplefilter("ignore", DeprecationWarning)
    from googleapiclient import discovery
    from googleapiclient.errors import HttpError

PROJECT, OTHER = "wire-models", "wire-models-other"
PARENT = f"projects/{PROJECT}"
BUCKET = "wire-ml-models"
ORIGIN = f"gs://{BUCKET}/export/1/"
FOLLOW_S = 0.02
NUMBERS = itertools.count()


class Following:
    """Deployments that carry out what is asked for as soon as it is written, in a thread of their own."""

    def __init__(self, home: Path) -> None:
        self._database = Database(home / "state.db")
        self.fake = FakeDeployments(self._database)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ended.wait(FOLLOW_S):
            try:
                self.fake.wake()
            except (AbortedError, UnavailableError):
                continue  # a test was faster, or still writes; the next look sees what it wrote

    def __enter__(self) -> FakeDeployments:
        self._thread.start()
        return self.fake

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._database.close()


@pytest.fixture(scope="module")
def shed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    running = RunningGateway(tmp_path_factory.mktemp("models")).start()
    call = Caller(running.url)
    for project, bucket in ((PROJECT, BUCKET), (OTHER, f"{BUCKET}-other")):
        status, _ = call("POST", f"/storage/v1/b?project={project}", token=running.token, body={"name": bucket})
        assert status == 200
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=export%2F1%2Fsaved_model.pb"
        assert call("POST", path, token=running.token, body=b"model", headers={"content-type": "x/y"})[0] == 200
    yield running
    running.stop()


@pytest.fixture(scope="module")
def deployments(shed: RunningGateway) -> Iterator[FakeDeployments]:
    with Following(shed.home.path) as fake:
        yield fake


@pytest.fixture(scope="module")
def ml(shed: RunningGateway, deployments: FakeDeployments) -> Iterator[Any]:
    built = discovery.build(
        "ml",
        "v1",
        credentials=Credentials(shed.token),  # type: ignore[no-untyped-call]
        client_options={"api_endpoint": shed.url},
        static_discovery=True,
        cache_discovery=False,
    )
    with closing(built) as client:
        yield client.projects()


def refusal(request: Any) -> dict[str, Any]:
    """The error body of a request that is refused."""
    with pytest.raises(HttpError) as caught:
        request.execute()
    error: dict[str, Any] = json.loads(caught.value.content)["error"]
    assert error["code"] == caught.value.resp.status
    return error


def model(ml: Any, name: str, **fields: Any) -> str:
    """A new model; its whole name."""
    return str(ml.models().create(parent=PARENT, body={"name": name, **fields}).execute()["name"])


def finished(ml: Any, operation: dict[str, Any]) -> dict[str, Any]:
    """Wait for an operation as clients do."""
    found: dict[str, Any] = eventually(
        ml.operations().get(name=operation["name"]).execute, lambda found: bool(found.get("done"))
    )
    return found


def version(ml: Any, parent: str, name: str = "v1", **fields: Any) -> dict[str, Any]:
    body = {"name": name, "deploymentUri": ORIGIN, "runtimeVersion": "2.21", "pythonVersion": "3.11", **fields}
    begun = ml.models().versions().create(parent=parent, body=body).execute()
    return finished(ml, begun)


class TestModels:
    def test_a_model_from_its_creation_to_its_end(self, ml: Any) -> None:
        body = {"name": "life", "regions": ["us-central1"], "description": "Digits", "labels": {"a": "b"}}
        made = ml.models().create(parent=PARENT, body=body).execute()
        name = f"{PARENT}/models/life"
        assert made == {**body, "name": name, "etag": made["etag"]}
        assert ml.models().get(name=name).execute() == made
        patch = {"description": "Letters", "etag": made["etag"]}
        done = ml.models().patch(name=name, updateMask="description", body=patch).execute()
        assert (done["done"], done["response"]["description"]) == (True, "Letters")
        assert ml.operations().get(name=done["name"]).execute() == done
        error = refusal(ml.models().patch(name=name, updateMask="description", body=patch))
        assert (error["code"], error["status"]) == (409, "ABORTED")
        gone = ml.models().delete(name=name).execute()
        assert gone["response"] == {"@type": "type.googleapis.com/google.protobuf.Empty"}
        assert refusal(ml.models().get(name=name))["status"] == "NOT_FOUND"
        listed = ml.operations().list(name=PARENT, filter="metadata.operationType=DELETE_MODEL").execute()
        assert gone in listed["operations"]

    def test_a_name_that_is_taken(self, ml: Any) -> None:
        model(ml, "taken")
        error = refusal(ml.models().create(parent=PARENT, body={"name": "taken"}))
        assert (error["code"], error["status"]) == (409, "ALREADY_EXISTS")
        assert error["message"] == "Field: model.name Error: A model with the same name already exists."
        violation = {"field": "model.name", "description": "A model with the same name already exists."}
        assert error["details"] == [
            {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}
        ]

    def test_pages(self, ml: Any) -> None:
        parent = "projects/wire-models-pages"
        assert ml.models().list(parent=parent).execute() == {}
        for number in range(5):
            ml.models().create(parent=parent, body={"name": f"m{number}"}).execute()
        seen: list[str] = []
        request = ml.models().list(parent=parent, pageSize=2)
        while request is not None:
            page = request.execute()
            seen += [found["name"].rpartition("/")[2] for found in page["models"]]
            request = ml.models().list_next(request, page)
        assert seen == ["m4", "m3", "m2", "m1", "m0"]

    def test_policies(self, ml: Any) -> None:
        name = model(ml, "policies")
        found = ml.models().getIamPolicy(resource=name).execute()
        assert "bindings" not in found
        binding = {"role": "roles/ml.modelUser", "members": ["user:ann"]}
        policy = {"policy": {"bindings": [binding], "etag": found["etag"]}}
        assert ml.models().setIamPolicy(resource=name, body=policy).execute()["bindings"] == [binding]
        assert refusal(ml.models().setIamPolicy(resource=name, body=policy))["status"] == "ABORTED"
        asked = {"permissions": ["ml.models.predict", "ml.models.setIamPolicy"]}
        assert ml.models().testIamPermissions(resource=name, body=asked).execute() == asked


class TestVersions:
    def test_a_version_from_its_creation_to_its_end(self, ml: Any) -> None:
        parent = model(ml, "versions")
        done = version(ml, parent, labels={"a": "b"}, framework="TENSORFLOW")
        assert done["name"].startswith(f"{PARENT}/operations/create_versions_v1-")
        assert done["metadata"]["operationType"] == "CREATE_VERSION"
        assert done["metadata"]["modelName"] == parent
        assert done["metadata"]["projectNumber"].isdigit()
        assert done["response"]["@type"] == "type.googleapis.com/google.cloud.ml.v1.Version"
        found = ml.models().versions().get(name=f"{parent}/versions/v1").execute()
        assert (found["state"], found["isDefault"], found["deploymentUri"]) == ("READY", True, ORIGIN)
        assert ml.models().get(name=parent).execute()["defaultVersion"] == found

        version(ml, parent, "v2")
        listed = ml.models().versions().list(parent=parent).execute()["versions"]
        assert [each["name"].rpartition("/")[2] for each in listed] == ["v2", "v1"]
        changed = ml.models().versions().setDefault(name=f"{parent}/versions/v2", body={}).execute()
        assert changed["isDefault"] is True
        mask = "description,autoScaling.minNodes"
        body = {"description": "second", "autoScaling": {"minNodes": 0}}
        patched = ml.models().versions().patch(name=f"{parent}/versions/v2", updateMask=mask, body=body).execute()
        assert finished(ml, patched)["response"]["autoScaling"] == {"minNodes": 0}

        error = refusal(ml.models().versions().delete(name=f"{parent}/versions/v2"))
        assert (error["code"], error["status"]) == (400, "FAILED_PRECONDITION")
        assert refusal(ml.models().delete(name=parent))["status"] == "FAILED_PRECONDITION"
        for name in ("v1", "v2"):
            gone = finished(ml, ml.models().versions().delete(name=f"{parent}/versions/{name}").execute())
            assert gone["metadata"]["operationType"] == "DELETE_VERSION"
        assert ml.models().versions().list(parent=parent).execute() == {}
        assert "defaultVersion" not in ml.models().get(name=parent).execute()
        ml.models().delete(name=parent).execute()

    def test_a_creation_that_fails_and_one_that_is_cancelled(self, ml: Any, deployments: FakeDeployments) -> None:
        parent = model(ml, "failing")
        deployments.failure = 'Create Version failed. Bad model detected with error:  "no"'
        try:
            done = version(ml, parent)
        finally:
            deployments.failure = ""
        assert done["error"]["message"].startswith("Create Version failed.")
        found = ml.models().versions().get(name=f"{parent}/versions/v1").execute()
        assert (found["state"], found["errorMessage"]) == ("FAILED", done["error"]["message"])
        deployments.hold = True
        try:
            body = {"name": "v2", "deploymentUri": ORIGIN}
            begun = ml.models().versions().create(parent=parent, body=body).execute()
            assert "done" not in begun
            ml.operations().cancel(name=begun["name"]).execute()
        finally:
            deployments.hold = False
        assert finished(ml, begun)["metadata"]["isCancellationRequested"] is True

    @pytest.mark.parametrize(
        ("fields", "status", "field"),
        [
            ({"deploymentUri": "gs://wire-ml-models/nothing/"}, "FAILED_PRECONDITION", "version.deployment_uri"),
            ({"deploymentUri": "http://127.0.0.1/"}, "INVALID_ARGUMENT", "version.deployment_uri"),
            ({"runtimeVersion": "99.9"}, "INVALID_ARGUMENT", "version.runtime_version"),
            ({"pythonVersion": "4"}, "INVALID_ARGUMENT", "version.python_version"),
            (
                {"acceleratorConfig": {"count": "1", "type": "NVIDIA_TESLA_K80"}},
                "INVALID_ARGUMENT",
                "version.accelerator_config",
            ),
            ({"foo": 1}, "INVALID_ARGUMENT", "version"),
        ],
    )
    def test_what_can_not_be_served(self, ml: Any, fields: dict[str, Any], status: str, field: str) -> None:
        parent = model(ml, f"refusing_{next(NUMBERS)}")
        body = {"name": "v1", "deploymentUri": ORIGIN, **fields}
        error = refusal(ml.models().versions().create(parent=parent, body=body))
        assert (error["code"], error["status"]) == (400, status)
        assert error["details"][0]["fieldViolations"][0]["field"] == field
        assert ml.models().versions().list(parent=parent).execute() == {}

    def test_containers_are_kept_as_they_were_sent(self, ml: Any, deployments: FakeDeployments) -> None:
        parent = model(ml, "containers")
        container = {
            "image": "us-central1-docker.pkg.dev/p/r/i",
            "command": ["serve"],
            "args": ["--port=$(AIP_HTTP_PORT)"],
            "env": [{"name": "A", "value": "b"}],
            "ports": [{"containerPort": 9000}],
        }
        given = {"name": "v1", "container": container, "routes": {"predict": "/p", "health": "/h"}}
        ml.models().versions().create(parent=parent, body=given).execute()
        found = ml.models().versions().get(name=f"{parent}/versions/v1").execute()
        assert (found["container"], found["routes"]) == (container, given["routes"])
        assert not {"deploymentUri", "runtimeVersion"} & set(found)

    def test_rows_are_not_predicted_by_containers(self, ml: Any, deployments: FakeDeployments) -> None:
        parent = model(ml, "no_rows")
        body = {"name": "v1", "container": {"image": "i"}}
        finished(ml, ml.models().versions().create(parent=parent, body=body).execute())
        job = {
            "jobId": "rows_of_a_container",
            "predictionInput": {
                "modelName": parent,
                "inputPaths": [f"{ORIGIN}*"],
                "outputPath": f"gs://{BUCKET}/out",
                "dataFormat": "JSON",
                "region": "us-central1",
            },
        }
        error = refusal(ml.jobs().create(parent=PARENT, body=job))
        assert (error["code"], error["status"]) == (400, "FAILED_PRECONDITION")
        assert "custom container" in error["message"]

    @pytest.mark.fault("F63")
    def test_a_bucket_of_another_project_is_as_good_as_absent(self, ml: Any) -> None:
        parent = model(ml, "foreign")
        errors = [
            refusal(
                ml.models().versions().create(parent=parent, body={"name": "v1", "deploymentUri": f"gs://{b}/export/1"})
            )
            for b in (f"{BUCKET}-other", f"{BUCKET}-absent")
        ]
        assert errors[0]["message"].replace("-other/", "-absent/") == errors[1]["message"]
        assert {error["status"] for error in errors} == {"FAILED_PRECONDITION"}


class TestRollout:
    def test_split_rollback_and_details(self, ml: Any, shed: RunningGateway) -> None:
        call = Caller(shed.url)
        parent = model(ml, "rollout")
        own = f"/trainshed/v1/{parent}"
        for name in ("v1", "v2"):
            version(ml, parent, name)
        status, told = call("POST", f"{own}:split", token=shed.token, body={"weights": {"v1": 90, "v2": 10}})
        assert (status, told["split"]) == (200, {"v1": 90, "v2": 10})
        assert call("GET", own, token=shed.token)[1]["split"] == {"v1": 90, "v2": 10}
        status, error = call("POST", f"{own}:split", token=shed.token, body={"weights": {"v1": 90}})
        assert (status, error["error"]["details"][0]["fieldViolations"][0]["field"]) == (400, "weights")
        assert call("POST", f"{own}:rollback", token=shed.token, body={})[1]["split"] == {}
        ml.models().versions().setDefault(name=f"{parent}/versions/v2", body={}).execute()
        status, told = call("POST", f"{own}:rollback", token=shed.token)
        assert (status, told["previousVersion"]) == (200, "v2")
        assert told["model"]["defaultVersion"]["name"] == f"{parent}/versions/v1"
        status, sample = call("GET", f"{own}/versions/v1/sample", token=shed.token)
        assert (status, sample["cut"]) == (200, False)
        status, details = call("GET", f"{own}/versions/v1", token=shed.token)
        assert (status, details["runtime"], details["loader"], details["hosts"]) == (200, "2.21", "fake", [])


@pytest.fixture(scope="module")
def gcloud(shed: RunningGateway, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs a command of gcloud ai-platform and gives its exit status, output and errors."""
    if shutil.which("gcloud") is None:
        pytest.skip("gcloud is not installed here, and Debian has no package of it")
    folder = tmp_path_factory.mktemp("gcloud")
    env = {key: value for key, value in os.environ.items() if not key.startswith("CLOUDSDK_")} | {
        "CLOUDSDK_CONFIG": str(folder),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_ML": f"{shed.url}/",
        "CLOUDSDK_AI_PLATFORM_REGION": "global",
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(shed.home.token),
        "CLOUDSDK_CORE_PROJECT": PROJECT,
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false",
        "CLOUDSDK_SURVEY_DISABLE_PROMPTS": "true",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }

    def run(*words: str, status: int = 0) -> tuple[str, str]:
        done = subprocess.run(
            ["gcloud", "ai-platform", *words], env=env, capture_output=True, text=True, timeout=180, cwd=folder
        )
        assert done.returncode == status, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout, done.stderr

    return run


class TestGcloud:
    def test_a_model_and_its_versions(self, gcloud: Any, ml: Any, tmp_path: Path) -> None:
        name = f"{PARENT}/models/cloud"
        _, said = gcloud("models", "create", "cloud", "--regions", "us-central1", "--enable-logging")
        assert f"Created ai platform model [{name}]." in said
        _, said = gcloud("models", "create", "cloud", "--regions", "us-central1", status=1)
        assert "Field: model.name Error: A model with the same name already exists." in said
        _, said = gcloud("versions", "create", "v1", "--model", "cloud", "--origin", ORIGIN, "--labels", "a=b")
        assert "Creating version" in said
        gcloud(
            "versions", "create", "v2", "--model", "cloud", "--origin", ORIGIN, "--runtime-version", "2.1", "--async"
        )

        shown, _ = gcloud("models", "list")
        assert any(line.split() == ["cloud", "v1"] for line in shown.splitlines())
        shown, _ = gcloud("models", "describe", "cloud", "--format", "json")
        assert json.loads(shown)["onlinePredictionLogging"] is True
        _, said = gcloud("models", "update", "cloud", "--description", "Digits", "--update-labels", "c=d")
        assert "Updated ai platform model [cloud]." in said

        shown, _ = gcloud("versions", "list", "--model", "cloud")
        assert {tuple(line.split()) for line in shown.splitlines()[1:]} == {
            ("v1", ORIGIN, "READY"),
            ("v2", ORIGIN, "READY"),
        }
        shown, _ = gcloud("versions", "set-default", "v2", "--model", "cloud")
        assert "isDefault: true" in shown
        shown, _ = gcloud("versions", "describe", "v1", "--model", "cloud", "--format", "json")
        described = json.loads(shown)
        assert (described["labels"], "isDefault" in described) == ({"a": "b"}, False)
        config = tmp_path / "config.yaml"
        config.write_text("manualScaling:\n  nodes: 2\n")
        update = ("versions", "update", "v1", "--model", "cloud")
        _, said = gcloud(*update, "--config", str(config), "--description", "first", "--update-labels", "e=f")
        assert "Updated AI Platform version [v1]." in said
        found = ml.models().versions().get(name=f"{name}/versions/v1").execute()
        assert (found["description"], found["labels"]) == ("first", {"a": "b", "e": "f"})
        assert found["manualScaling"] == {"nodes": 2}

        _, said = gcloud("versions", "delete", "v2", "--model", "cloud", status=1)
        assert "FAILED_PRECONDITION" in said
        _, said = gcloud("versions", "delete", "v1", "--model", "cloud")
        assert "Deleting version [v1]" in said
        gcloud("versions", "delete", "v2", "--model", "cloud")
        gcloud("models", "delete", "cloud")
        assert refusal(ml.models().get(name=name))["status"] == "NOT_FOUND"
        shown, _ = gcloud("operations", "list")
        assert "DELETE_MODEL" in shown

    def test_policies(self, gcloud: Any, ml: Any, tmp_path: Path) -> None:
        model(ml, "guarded")
        shown, _ = gcloud("models", "get-iam-policy", "guarded", "--format", "json")
        policy = json.loads(shown)
        policy["bindings"] = [{"role": "roles/ml.modelOwner", "members": ["user:ann"]}]
        file = tmp_path / "policy.json"
        file.write_text(json.dumps(policy))
        gcloud("models", "set-iam-policy", "guarded", str(file))
        shown, _ = gcloud("models", "get-iam-policy", "guarded")
        assert "roles/ml.modelOwner" in shown
