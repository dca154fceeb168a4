"""google-api-python-client, with only its endpoint changed, drives every method of the ml v1 API that is served."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from trainshed.domain.operations import Operation
from trainshed.store.database import Database
from trainshed.store.operations import OperationStore
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import Caller, RunningServer

with warnings.catch_warnings():  # httplib2 still calls pyparsing by its old names
    warnings.simplefilter("ignore", DeprecationWarning)
    from googleapiclient import discovery
    from googleapiclient.errors import HttpError

PROJECT, OTHER = "wire-project", "wire-other"
PARENT = f"projects/{PROJECT}"
BUCKET = "wire-ml-v1"
PACKAGE = f"gs://{BUCKET}/packages/sleeper-1.0-py3-none-any.whl"
HELD = "holds_the_only_slot"


def wheel() -> bytes:
    """A package whose module sleeps until it is ended."""
    content = {
        "sleeper/__init__.py": "",
        "sleeper/task.py": "import time\nprint('asleep', flush=True)\ntime.sleep(3600)\n",
        "sleeper-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: sleeper\nVersion: 1.0\n",
        "sleeper-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "sleeper-1.0.dist-info/RECORD"
    lines = [f"{name},{_digest(text)},{len(text)}" for name, text in content.items()]
    content[record] = "\n".join([*lines, f"{record},,", ""])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in content.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def _digest(text: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture(scope="module")
def shed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with one slot, so that a job in it keeps all others in the queue."""
    running = RunningServer(tmp_path_factory.mktemp("shed"), {"slots": 1, "grace_s": 1}).start()
    call = Caller(running.url)
    for project, bucket in ((PROJECT, BUCKET), (OTHER, f"{BUCKET}-other")):
        status, _ = call("POST", f"/storage/v1/b?project={project}", token=running.token, body={"name": bucket})
        assert status == 200
        name = PACKAGE.removeprefix(f"gs://{BUCKET}/").replace("/", "%2F")
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
        headers = {"content-type": "application/zip"}
        assert call("POST", path, token=running.token, body=wheel(), headers=headers)[0] == 200
    yield running
    assert running.close() == 0


@pytest.fixture(scope="module")
def client(shed: RunningServer) -> Callable[[str], Any]:
    """Makes the client of whoever holds a token."""

    def build(token: str) -> Any:
        return discovery.build(
            "ml",
            "v1",
            credentials=Credentials(token),  # type: ignore[no-untyped-call]
            client_options={"api_endpoint": shed.url},
            static_discovery=True,
            cache_discovery=False,
        )

    return build


@pytest.fixture(scope="module")
def ml(shed: RunningServer, client: Callable[[str], Any]) -> Iterator[Any]:
    with closing(client(shed.token)) as built:
        yield built.projects()


@pytest.fixture(scope="module", autouse=True)
def held(ml: Any) -> Iterator[None]:
    """A job sleeps in the only slot while the tests run, and is cancelled behind them."""
    ml.jobs().create(parent=PARENT, body=job(HELD)).execute()
    wait_for(ml, HELD, lambda found: found["state"] == "RUNNING")
    yield
    for project in (PROJECT, OTHER):  # or they would run, one after the other, and outlive the server
        waiting = ml.jobs().list(parent=f"projects/{project}", filter="state=QUEUED", pageSize=100).execute()
        for found in waiting.get("jobs", []):
            ml.jobs().cancel(name=f"projects/{project}/jobs/{found['jobId']}", body={}).execute()
    ml.jobs().cancel(name=f"{PARENT}/jobs/{HELD}", body={}).execute()
    ended = wait_for(ml, HELD, lambda found: "endTime" in found)
    assert (ended["state"], ended["errorMessage"]) == ("CANCELLED", "The job was cancelled by owner.")


def wait_for(ml: Any, job_id: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    def get() -> dict[str, Any]:
        found: dict[str, Any] = ml.jobs().get(name=f"{PARENT}/jobs/{job_id}").execute()
        assert condition(found) or found["state"] not in ("FAILED", "SUCCEEDED"), found
        return found

    return eventually(get, condition, within_s=120)


def job(job_id: str, **changes: Any) -> dict[str, Any]:
    given = {
        "scaleTier": "BASIC",
        "packageUris": [PACKAGE],
        "pythonModule": "sleeper.task",
        "region": "us-central1",
        "runtimeVersion": "python",
        "args": ["--data_dir=gs://somewhere/data", "ü"],
        "jobDir": f"gs://{BUCKET}/{job_id}",
        **changes,
    }
    return {"jobId": job_id, "labels": {"made": "by-test"}, "trainingInput": given}


def refusal(request: Any) -> dict[str, Any]:
    """The error body of a request that is refused."""
    with pytest.raises(HttpError) as caught:
        request.execute()
    error: dict[str, Any] = json.loads(caught.value.content)["error"]
    assert error["code"] == caught.value.resp.status
    assert caught.value.reason == error["message"]
    return error


def violation(error: dict[str, Any]) -> dict[str, Any]:
    [detail] = error["details"]
    assert detail["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    [found] = detail["fieldViolations"]
    return dict(found)


class TestCreate:
    def test_a_job_is_stored_as_it_was_sent(self, ml: Any) -> None:
        made = ml.jobs().create(parent=PARENT, body=job("created")).execute()
        assert made["jobId"] == "created"
        assert made["state"] == "QUEUED"
        assert made["labels"] == {"made": "by-test"}
        assert made["trainingInput"] == job("created")["trainingInput"]
        assert made["createTime"].endswith("Z")
        assert base64.b64decode(made["etag"], validate=True)
        assert int(made["jobPosition"]) >= 1
        assert "startTime" not in made
        assert "endTime" not in made

    def test_what_gcloud_sends(self, ml: Any) -> None:
        sent = job("as_gcloud", enableWebAccess=False, pythonVersion="3.7", scheduling={"maxRunningTime": "3600s"})
        assert ml.jobs().create(parent=PARENT, body=sent).execute()["trainingInput"]["enableWebAccess"] is False

    def test_a_name_is_taken_for_ever(self, ml: Any) -> None:
        ml.jobs().create(parent=PARENT, body=job("taken")).execute()
        error = refusal(ml.jobs().create(parent=PARENT, body=job("taken")))
        assert (error["code"], error["status"]) == (409, "ALREADY_EXISTS")
        assert error["message"] == "Field: job.job_id Error: A job with this id already exists."
        assert violation(error) == {"field": "job.job_id", "description": "A job with this id already exists."}

    def test_an_unknown_field(self, ml: Any) -> None:
        error = refusal(ml.jobs().create(parent=PARENT, body=job("x", foo=1)))
        wanted = "Invalid JSON payload received. Unknown name \"foo\" at 'job.training_input': Cannot find field."
        assert (error["code"], error["status"], error["message"]) == (400, "INVALID_ARGUMENT", wanted)
        assert violation(error) == {"field": "job.training_input", "description": wanted}

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"scaleTier": "STANDARD_1", "workerCount": "2"}, "worker_count"),
            ({"scaleTier": "BASIC_GPU"}, "scale_tier"),
            ({"hyperparameters": {"goal": "MAXIMIZE"}}, "hyperparameters.params"),
            ({"workerConfig": {"imageUri": "worker:1"}}, "worker_config.image_uri"),
            ({"serviceAccount": "a@b.c"}, "service_account"),
            ({"runtimeVersion": "99.9"}, "training_input.runtime_version"),
            ({"pythonModule": "a b"}, "python_module"),
            ({"packageUris": ["http://127.0.0.1/x"]}, "package_uris"),
            ({"jobDir": f"gs://{BUCKET}/../x"}, "job_dir"),
        ],
    )
    def test_what_is_not_offered(self, ml: Any, changes: dict[str, Any], field: str) -> None:
        error = refusal(ml.jobs().create(parent=PARENT, body=job("x", **changes)))
        assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
        assert violation(error)["field"] == field
        assert error["message"] == f"Field: {field} Error: {violation(error)['description']}"

    @pytest.mark.fault("F63")
    def test_a_bucket_of_another_project_is_as_good_as_absent(self, ml: Any) -> None:
        theirs = PACKAGE.replace(BUCKET, f"{BUCKET}-other")
        absent = PACKAGE.replace(BUCKET, f"{BUCKET}-absent")
        errors = [refusal(ml.jobs().create(parent=PARENT, body=job("x", packageUris=[u]))) for u in (theirs, absent)]
        assert {(error["code"], error["status"]) for error in errors} == {(400, "FAILED_PRECONDITION")}
        assert errors[0]["message"].replace("-other/", "-absent/") == errors[1]["message"]
        assert errors[0]["message"].startswith("Field: package_uris Error: The provided GCS paths cannot be read")

    def test_a_batch_prediction_without_a_model_is_refused(self, ml: Any) -> None:
        body = {"jobId": "x", "predictionInput": {"dataFormat": "TEXT"}}
        error = refusal(ml.jobs().create(parent=PARENT, body=body))
        assert error["status"] == "INVALID_ARGUMENT"
        assert error["message"].startswith("Field: model_name Error: Name the model in one way")

    def test_a_body_that_is_no_job(self, shed: RunningServer) -> None:
        call = Caller(shed.url)
        for body in (b"", b"[]", b"{", b'{"jobId": "x", "trainingInput": []}', b'{"jobId": NaN}', b"[" * 100_000):
            status, answer = call("POST", f"/v1/{PARENT}/jobs", token=shed.token, body=body)
            assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")


class TestGetAndList:
    def test_a_job_that_is_not_there(self, ml: Any) -> None:
        for name in ("no_such_job", "not-a-job-name", "..", "a%2Fb"):
            error = refusal(ml.jobs().get(name=f"{PARENT}/jobs/{name}"))
            assert (error["code"], error["status"]) == (404, "NOT_FOUND")

    def test_an_empty_list_is_an_empty_object(self, ml: Any) -> None:
        assert ml.jobs().list(parent="projects/wire-empty").execute() == {}

    def test_pages(self, ml: Any) -> None:
        parent = f"projects/{OTHER}"
        names = [f"page_{number}" for number in range(5)]
        for name in names:
            body = job(name, jobDir=f"gs://{BUCKET}-other/x", packageUris=[PACKAGE.replace(BUCKET, f"{BUCKET}-other")])
            ml.jobs().create(parent=parent, body=body).execute()
        seen: list[str] = []
        request = ml.jobs().list(parent=parent, pageSize=2)
        sizes = []
        while request is not None:
            page = request.execute()
            sizes.append(len(page["jobs"]))
            seen += [found["jobId"] for found in page["jobs"]]
            request = ml.jobs().list_next(request, page)
        assert sizes == [2, 2, 1]
        assert seen == names[::-1]
        assert len(ml.jobs().list(parent=parent, pageSize=1_000_000).execute()["jobs"]) == 5

    def test_filters(self, ml: Any) -> None:
        ml.jobs().create(parent=PARENT, body=job("census_1")).execute()
        ml.jobs().create(parent=PARENT, body=job("census_2")).execute()
        ml.jobs().cancel(name=f"{PARENT}/jobs/census_2", body={}).execute()

        def ids(query: str) -> list[str]:
            found = ml.jobs().list(parent=PARENT, filter=query).execute()
            return [one["jobId"] for one in found.get("jobs", [])]

        assert ids("jobId=census*") == ["census_2", "census_1"]
        assert ids("jobId:census AND state:CANCELLED") == ["census_2"]
        assert ids("jobId=census* AND NOT state:CANCELLED AND labels.made=by-test") == ["census_1"]
        assert ids("state=FAILED") == []

    def test_the_filter_of_the_discovery_document(self, ml: Any) -> None:
        ml.jobs().create(parent=PARENT, body=job("rnn_1")).execute()
        found = ml.jobs().list(parent=PARENT, filter="jobId:rnn* AND state:QUEUED").execute()
        assert [one["jobId"] for one in found.get("jobs", [])] == ["rnn_1"]

    @pytest.mark.parametrize(
        ("parameters", "field"),
        [
            ({"pageSize": -1}, "page_size"),
            ({"pageToken": "bm90IG91cnM="}, "page_token"),
            ({"pageToken": "%%%"}, "page_token"),
            ({"filter": "state="}, "filter"),
        ],
    )
    def test_a_list_that_makes_no_sense(self, ml: Any, parameters: dict[str, Any], field: str) -> None:
        error = refusal(ml.jobs().list(parent=PARENT, **parameters))
        assert (error["status"], violation(error)["field"]) == ("INVALID_ARGUMENT", field)

    def test_an_unknown_parameter_is_named(self, shed: RunningServer) -> None:
        status, body = Caller(shed.url)("GET", f"/v1/{PARENT}/jobs?pagesize=3", token=shed.token)
        assert status == 400
        assert 'Unknown name "pagesize"' in body["error"]["message"]

    def test_positions_count_up_to_the_head_of_the_queue(self, ml: Any) -> None:
        for name in ("queued_a", "queued_b"):
            ml.jobs().create(parent=PARENT, body=job(name)).execute()
        before, after = (
            int(ml.jobs().get(name=f"{PARENT}/jobs/{name}").execute()["jobPosition"])
            for name in ("queued_a", "queued_b")
        )
        assert 1 <= before < after  # jobs of other projects may have their turn between them
        urgent = ml.jobs().create(parent=PARENT, body=job("queued_c", scheduling={"priority": 1000})).execute()
        assert urgent["jobPosition"] == "1"
        assert urgent["trainingInput"]["scheduling"] == {"priority": 1000}
        for name in ("queued_a", "queued_b", "queued_c"):
            ml.jobs().cancel(name=f"{PARENT}/jobs/{name}", body={}).execute()

    def test_a_running_job_shows_when_it_started(self, ml: Any) -> None:
        found = ml.jobs().get(name=f"{PARENT}/jobs/{HELD}").execute()
        assert found["state"] == "RUNNING"
        assert found["createTime"] < found["startTime"]
        assert "jobPosition" not in found

    def test_what_the_api_has_no_field_for(self, ml: Any, shed: RunningServer) -> None:
        ml.jobs().create(parent=PARENT, body=job("told", pythonVersion="3.5")).execute()
        status, told = Caller(shed.url)("GET", f"/trainshed/v1/{PARENT}/jobs/told", token=shed.token)
        assert status == 200
        assert told["job"] == ml.jobs().get(name=f"{PARENT}/jobs/told").execute()
        assert told["runtime"] == "python"
        assert any("Python 3.5" in note for note in told["notes"])
        assert "queue" in told["waiting"] or "next" in told["waiting"]
        assert told["events"][-1]["message"] == "Job told is queued."


class TestPatch:
    def test_labels(self, ml: Any) -> None:
        made = ml.jobs().create(parent=PARENT, body=job("labelled")).execute()
        name = f"{PARENT}/jobs/labelled"
        changed = ml.jobs().patch(name=name, updateMask="labels", body={"labels": {"a": "b"}}).execute()
        assert changed["labels"] == {"a": "b"}
        assert changed["etag"] != made["etag"]
        error = refusal(ml.jobs().patch(name=name, updateMask="labels,etag", body={"labels": {}, "etag": made["etag"]}))
        assert (error["code"], error["status"]) == (409, "ABORTED")
        body = {"labels": {"c": "d"}, "etag": changed["etag"]}
        assert ml.jobs().patch(name=name, updateMask="labels,etag", body=body).execute()["labels"] == {"c": "d"}

    @pytest.mark.parametrize("mask", [None, "trainingInput", "labels,state"])
    def test_nothing_else(self, ml: Any, mask: str | None) -> None:
        error = refusal(ml.jobs().patch(name=f"{PARENT}/jobs/{HELD}", updateMask=mask, body={"labels": {}}))
        assert (error["status"], violation(error)["field"]) == ("INVALID_ARGUMENT", "update_mask")

    def test_bad_labels(self, ml: Any) -> None:
        error = refusal(
            ml.jobs().patch(name=f"{PARENT}/jobs/{HELD}", updateMask="labels", body={"labels": {"Upper": "x"}})
        )
        assert violation(error)["field"] == "job.labels"


class TestCancel:
    def test_a_queued_job(self, ml: Any) -> None:
        name = f"{PARENT}/jobs/cancelled"
        ml.jobs().create(parent=PARENT, body=job("cancelled")).execute()
        assert ml.jobs().cancel(name=name, body={}).execute() == {}
        found = ml.jobs().get(name=name).execute()
        assert (found["state"], found["errorMessage"]) == ("CANCELLED", "The job was cancelled by owner.")
        for _ in range(2):
            error = refusal(ml.jobs().cancel(name=name, body={}))
            assert (error["code"], error["status"]) == (400, "FAILED_PRECONDITION")
        assert ml.jobs().get(name=name).execute() == found

    def test_a_job_that_is_not_there(self, ml: Any) -> None:
        assert refusal(ml.jobs().cancel(name=f"{PARENT}/jobs/none", body={}))["status"] == "NOT_FOUND"


class TestPolicies:
    def test_read_change_write(self, ml: Any) -> None:
        ml.jobs().create(parent=PARENT, body=job("shared")).execute()
        resource = f"{PARENT}/jobs/shared"
        empty = ml.jobs().getIamPolicy(resource=resource).execute()
        assert "bindings" not in empty
        bindings = [{"role": "roles/ml.jobOwner", "members": ["user:ann"]}]
        body = {"policy": {"bindings": bindings, "etag": empty["etag"]}, "updateMask": "bindings,etag"}
        written = ml.jobs().setIamPolicy(resource=resource, body=body).execute()
        assert (written["bindings"], written["version"]) == (bindings, 1)
        options = {"options_requestedPolicyVersion": 3}
        assert ml.jobs().getIamPolicy(resource=resource, **options).execute() == written
        assert refusal(ml.jobs().setIamPolicy(resource=resource, body=body))["status"] == "ABORTED"
        bad = {"policy": {"bindings": [{"role": "roles/nope", "members": ["user:ann"]}]}}
        error = refusal(ml.jobs().setIamPolicy(resource=resource, body=bad))
        assert violation(error)["field"] == "policy.bindings[0].role"

    def test_permissions_of_a_viewer(self, ml: Any, client: Callable[[str], Any], shed: RunningServer) -> None:
        ml.jobs().create(parent=PARENT, body=job("watched")).execute()
        resource = f"{PARENT}/jobs/watched"
        _, made = Caller(shed.url)(
            "POST",
            "/trainshed/v1/tokens",
            token=shed.token,
            body={"user": "ann", "project": PROJECT, "role": "viewer"},
        )
        asked = {"permissions": ["ml.jobs.get", "ml.jobs.cancel"]}
        with closing(client(made["token"])) as viewer:
            jobs = viewer.projects().jobs()
            held = jobs.testIamPermissions(resource=resource, body=asked).execute()
            assert held == {"permissions": ["ml.jobs.get"]}
            policy = {"policy": {"bindings": [{"role": "roles/ml.admin", "members": ["user:ann"]}]}}
            assert refusal(jobs.setIamPolicy(resource=resource, body=policy))["status"] == "PERMISSION_DENIED"
            ml.jobs().setIamPolicy(resource=resource, body=policy).execute()
            assert jobs.testIamPermissions(resource=resource, body=asked).execute() == asked
        assert ml.jobs().testIamPermissions(resource=f"{PARENT}/jobs/none", body=asked).execute() == {}
        error = refusal(ml.jobs().testIamPermissions(resource=resource, body={"permissions": ["ml.jobs.*"]}))
        assert violation(error)["field"] == "permissions"


class TestProjects:
    def test_config(self, ml: Any) -> None:
        config = ml.getConfig(name=PARENT).execute()
        number = config["serviceAccountProject"]
        assert config["serviceAccount"] == f"service-{number}@cloud-ml.google.com.iam.gserviceaccount.com"
        assert int(number) > 0
        assert ml.getConfig(name=PARENT).execute() == config
        assert ml.getConfig(name=f"projects/{OTHER}").execute()["serviceAccountProject"] != number

    def test_locations(self, ml: Any) -> None:
        [only] = ml.locations().list(parent=PARENT).execute()["locations"]
        assert only["name"] == f"{PARENT}/locations/local"
        assert [capability["type"] for capability in only["capabilities"]] == ["TRAINING"]
        assert ml.locations().get(name=only["name"]).execute() == only
        assert refusal(ml.locations().get(name=f"{PARENT}/locations/mars"))["status"] == "NOT_FOUND"


@pytest.fixture(scope="module")
def operations(shed: RunningServer) -> None:
    """Nothing on this server version makes operations, so the test writes some beside it."""
    with closing(Database(Path(shed.home) / "state.db")) as database:
        store = OperationStore(database)
        for number, kind in enumerate(("CREATE_VERSION", "DELETE_MODEL", "DELETE_VERSION")):
            made = Operation(project=PROJECT, id=f"op_{number}", metadata={"operationType": kind}, created_us=number)
            store.add(replace(made, done=True, response={}) if kind == "DELETE_MODEL" else made)


@pytest.mark.usefixtures("operations")
class TestOperations:
    def test_get_and_list(self, ml: Any) -> None:
        done = ml.operations().get(name=f"{PARENT}/operations/op_1").execute()
        assert done == {
            "name": f"{PARENT}/operations/op_1",
            "metadata": {"operationType": "DELETE_MODEL"},
            "done": True,
            "response": {},
        }
        page = ml.operations().list(name=PARENT, pageSize=2).execute()
        assert [found["name"][-4:] for found in page["operations"]] == ["op_2", "op_1"]
        request = ml.operations().list_next(ml.operations().list(name=PARENT, pageSize=2), page)
        assert [found["name"][-4:] for found in request.execute()["operations"]] == ["op_0"]
        picked = ml.operations().list(name=PARENT, filter="metadata.operationType=DELETE*").execute()
        assert len(picked["operations"]) == 2
        assert ml.operations().list(name=f"projects/{OTHER}").execute() == {}
        assert refusal(ml.operations().get(name=f"{PARENT}/operations/none"))["status"] == "NOT_FOUND"

    def test_cancel(self, ml: Any) -> None:
        for _ in range(2):
            assert ml.operations().cancel(name=f"{PARENT}/operations/op_0").execute() == {}
        asked = ml.operations().get(name=f"{PARENT}/operations/op_0").execute()
        assert asked["metadata"]["isCancellationRequested"] is True
        assert ml.operations().cancel(name=f"{PARENT}/operations/op_1").execute() == {}
        assert (
            "isCancellationRequested" not in ml.operations().get(name=f"{PARENT}/operations/op_1").execute()["metadata"]
        )
        assert refusal(ml.operations().cancel(name=f"{PARENT}/operations/none"))["status"] == "NOT_FOUND"

    def test_partial_success_is_not_served(self, ml: Any) -> None:
        assert refusal(ml.operations().list(name=PARENT, returnPartialSuccess=True))["status"] == "UNIMPLEMENTED"


def test_another_projects_token_sees_nothing(client: Callable[[str], Any], shed: RunningServer) -> None:
    body = {"user": "eve", "project": OTHER, "role": "owner"}
    _, made = Caller(shed.url)("POST", "/trainshed/v1/tokens", token=shed.token, body=body)
    with closing(client(made["token"])) as eve:
        jobs = eve.projects().jobs()
        for request in (
            jobs.get(name=f"{PARENT}/jobs/{HELD}"),
            jobs.list(parent=PARENT),
            jobs.create(parent=PARENT, body=job("x")),
            jobs.cancel(name=f"{PARENT}/jobs/{HELD}", body={}),
        ):
            assert refusal(request)["status"] == "PERMISSION_DENIED"
        own = {**job("x", packageUris=[PACKAGE]), "jobId": "x"}
        assert refusal(jobs.create(parent=f"projects/{OTHER}", body=own))["status"] == "FAILED_PRECONDITION"
