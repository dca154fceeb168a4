"""All methods of the ml v1 API, called by google-api-python-client. Each response has the form of its schema.

The schemas are those of the discovery document inside the client.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.saved_models import saved_models
from trainshed.testing.workloads.submitter import Submitter

with warnings.catch_warnings():  # httplib2 still calls pyparsing by its old names
    warnings.simplefilter("ignore", DeprecationWarning)
    from googleapiclient import discovery
    from googleapiclient.http import HttpRequest

DOCUMENT = json.loads((files("googleapiclient") / "discovery_cache" / "documents" / "ml.v1.json").read_text())
SCHEMAS: Mapping[str, Any] = DOCUMENT["schemas"]
PROJECT = "all-methods"
PARENT = f"projects/{PROJECT}"
LOCATION = f"{PARENT}/locations/europe-west1"
BINDING = {"role": "roles/ml.admin", "members": ["user:ann"]}
SHAPLEY = {"sampledShapleyAttribution": {"numPaths": 5}}
OPERATION = "GoogleLongrunning__Operation"
#: What the schemas have no name for: the content of operations, by the last word of its `@type`.
CONTENT = {
    "SuggestTrialsMetadata": "GoogleCloudMlV1__SuggestTrialsMetadata",
    "SuggestTrialsResponse": "GoogleCloudMlV1__SuggestTrialsResponse",
    "CheckTrialEarlyStoppingStateMetadata": "GoogleCloudMlV1__CheckTrialEarlyStoppingStateMetatdata",
    "CheckTrialEarlyStoppingStateResponse": "GoogleCloudMlV1__CheckTrialEarlyStoppingStateResponse",
    "OperationMetadata": "GoogleCloudMlV1__OperationMetadata",
    "Model": "GoogleCloudMlV1__Model",
    "Version": "GoogleCloudMlV1__Version",
    "Empty": "GoogleProtobuf__Empty",
}
TRAINER = """
import sys
import hypertune
x = float(sys.argv[sys.argv.index("--x") + 1])
hypertune.HyperTune().report_hyperparameter_tuning_metric("score", -((x - 0.3) ** 2), 1)
"""


def methods(resource: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from methods(inner)


METHODS = {method["id"]: method for method in methods(DOCUMENT)}


def violations(value: Any, schema: Mapping[str, Any], where: str = "$") -> Iterator[str]:
    """Yield what of a JSON value is not as its schema says."""
    if "$ref" in schema:
        name = schema["$ref"]
        if name == "GoogleApi__HttpBody":  # the body itself, of any form
            return
        yield from violations(value, SCHEMAS[name], where)
        if name == OPERATION:
            for part in ("metadata", "response"):
                if part in value:
                    content = dict(value[part])
                    inner = CONTENT[content.pop("@type").rpartition(".")[2]]
                    yield from violations(content, {"$ref": inner}, f"{where}.{part}")
        return
    match schema["type"]:
        case "any":
            return
        case "object" if isinstance(value, dict):
            for key, inner in value.items():
                inner_schema = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
                if inner_schema is None:
                    yield f"{where}.{key} is unknown"
                else:
                    yield from violations(inner, inner_schema, f"{where}.{key}")
        case "array" if isinstance(value, list):
            for index, inner in enumerate(value):
                yield from violations(inner, schema["items"], f"{where}[{index}]")
        case _ if not is_scalar(value, schema):
            yield f"{where} is {value!r}, not {schema['type']} {schema.get('format', '')}"


#: Formats of strings.
FORMATS = {
    "int64": r"-?\d+",
    "google-datetime": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z",
    "google-duration": r"-?\d+(\.\d{1,9})?s",
    "byte": r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
}


def is_scalar(value: object, schema: Mapping[str, Any]) -> bool:
    match schema["type"], value:
        case "boolean", bool():
            return True
        case "integer", int() if not isinstance(value, bool):
            return -(1 << 31) <= value < 1 << 31
        case "number", int() | float():
            return not isinstance(value, bool)
        case "string", str():
            form = FORMATS.get(schema.get("format", ""), r"(?s).*")
            return value in schema.get("enum", (value,)) and re.fullmatch(form, value) is not None
    return False


def test_what_does_not_fit_a_schema_is_found() -> None:
    trial = {"$ref": "GoogleCloudMlV1__Trial"}
    good = {"name": "t", "state": "ACTIVE", "parameters": [{"parameter": "x", "floatValue": 1, "intValue": "2"}]}
    assert list(violations(good, trial)) == []
    wrongs: tuple[dict[str, Any], ...] = (
        {"names": "t"},
        {"state": "INFEASIBLE"},
        {"startTime": "2026-11-18"},
        {"parameters": {}},
        {"parameters": [{"intValue": 2}]},
        {"trialInfeasible": "true"},
        {"measurements": [{"elapsedTime": {"seconds": 1}}]},
    )
    for wrong in wrongs:
        assert len(list(violations(wrong, trial))) == 1, wrong


class Calls:
    """A client whose responses are compared with their schemas. `ids` are the methods that succeeded."""

    def __init__(self, server: RunningServer) -> None:
        self.ids: set[str] = set()
        ids = self.ids

        class CheckedRequest(HttpRequest):  # type: ignore[misc]
            def execute(self, *args: Any, **kwargs: Any) -> Any:
                answer = super().execute(*args, **kwargs)
                assert list(violations(answer, METHODS[self.methodId]["response"], self.methodId)) == []
                ids.add(self.methodId)
                return answer

        self.client = discovery.build(
            "ml",
            "v1",
            credentials=Credentials(server.token),  # type: ignore[no-untyped-call]
            client_options={"api_endpoint": server.url},
            requestBuilder=CheckedRequest,
            static_discovery=True,
            cache_discovery=False,
        )


@pytest.fixture(scope="module")
def calls(framework_server: RunningServer) -> Iterator[Calls]:
    calls = Calls(framework_server)
    with closing(calls.client):
        yield calls


def test_all_methods_answer_as_their_schemas_say(framework_server: RunningServer, calls: Calls, tmp_path: Path) -> None:
    ml = calls.client.projects()
    deployer = Deployer(framework_server, PROJECT, tmp_path)
    call_jobs(ml, Submitter(framework_server, PROJECT, tmp_path, bucket=deployer.bucket))
    call_models(ml, deployer.upload_folder(saved_models() / "linear", "linear"))
    call_studies(ml.locations())
    ml.getConfig(name=PARENT).execute()
    [location] = ml.locations().list(parent=PARENT).execute()["locations"]
    ml.locations().get(name=location["name"]).execute()
    assert calls.ids == set(METHODS)


def call_jobs(ml: Any, submitter: Submitter) -> None:
    """Methods of jobs, for a tuning job with two trials."""
    params = [{"parameterName": "x", "type": "DOUBLE", "minValue": 0, "maxValue": 1}]
    spec = {"hyperparameterMetricTag": "score", "params": params, "maxTrials": 2, "maxParallelTrials": 2}
    first = submitter.submit("uploaded", TRAINER, args=["--x", "0"])["trainingInput"]
    jobs = ml.jobs()
    body = {"jobId": "search", "labels": {"a": "b"}, "trainingInput": first | {"args": [], "hyperparameters": spec}}
    jobs.create(parent=PARENT, body=body).execute()
    name = f"{PARENT}/jobs/search"
    done = eventually(jobs.get(name=name).execute, lambda job: "endTime" in job, within_s=120)
    assert [trial["state"] for trial in done["trainingOutput"]["trials"]] == ["SUCCEEDED"] * 2
    assert {job["jobId"] for job in jobs.list(parent=PARENT).execute()["jobs"]} == {"search", "uploaded"}
    jobs.patch(name=name, updateMask="labels", body={"labels": {"c": "d"}}).execute()
    call_policy(jobs, name, "ml.jobs.get")
    jobs.create(parent=PARENT, body=body | {"jobId": "cancelled"}).execute()
    jobs.cancel(name=f"{PARENT}/jobs/cancelled", body={}).execute()


def call_policy(resources: Any, name: str, permission: str) -> None:
    resources.getIamPolicy(resource=name).execute()
    resources.setIamPolicy(resource=name, body={"policy": {"bindings": [BINDING]}}).execute()
    asked = {"permissions": [permission]}
    assert resources.testIamPermissions(resource=name, body=asked).execute() == asked


def call_models(ml: Any, uri: str) -> None:
    """Methods of models, versions, operations and predictions."""
    models, versions, operations = ml.models(), ml.models().versions(), ml.operations()
    model = models.create(parent=PARENT, body={"name": "linear", "labels": {"a": "b"}}).execute()["name"]
    body = {"deploymentUri": uri, "framework": "SCIKIT_LEARN", "explanationConfig": SHAPLEY, "labels": {"a": "b"}}

    def finished(operation: dict[str, Any]) -> dict[str, Any]:
        get = operations.get(name=operation["name"]).execute
        done: dict[str, Any] = eventually(get, lambda found: found.get("done"), within_s=120)
        assert "error" not in done, done
        return done

    first, second = f"{model}/versions/v1", f"{model}/versions/v2"
    for name in (first, second):
        finished(versions.create(parent=model, body=body | {"name": name.rpartition("/")[2]}).execute())
    assert ml.predict(name=first, body={"instances": [[1, 1, 1]]}).execute()["predictions"]
    assert ml.explain(name=first, body={"instances": [[1, 1, 1]]}).execute()["explanations"]
    assert len(versions.list(parent=model).execute()["versions"]) == 2
    assert versions.get(name=first).execute()["isDefault"] is True
    versions.setDefault(name=second, body={}).execute()
    finished(versions.patch(name=first, updateMask="description", body={"description": "old"}).execute())
    models.get(name=model).execute()
    finished(models.patch(name=model, updateMask="description", body={"description": "lines"}).execute())
    assert len(models.list(parent=PARENT).execute()["models"]) == 2
    call_policy(models, model, "ml.models.get")
    for name in (first, second):
        finished(versions.delete(name=name).execute())
    deleted = finished(models.delete(name=model).execute())
    operations.cancel(name=deleted["name"]).execute()
    assert len(operations.list(name=PARENT).execute()["operations"]) >= 6


def call_studies(locations: Any) -> None:
    """Methods of studies, trials and their operations, with all fields that a trial can have."""
    studies, trials = locations.studies(), locations.studies().trials()
    rate = {"parameter": "rate", "type": "DOUBLE", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}
    units = {"parameter": "units", "type": "INTEGER", "integerValueSpec": {"minValue": 1, "maxValue": 64}}
    batch = {"parameter": "batch", "type": "DISCRETE", "discreteValueSpec": {"values": [16, 32]}}
    kind = {
        "parameter": "kind",
        "type": "CATEGORICAL",
        "categoricalValueSpec": {"values": ["a", "b"]},
        "childParameterSpecs": [batch | {"parentCategoricalValues": {"values": ["a"]}}],
    }
    config = {
        "metrics": [{"metric": "score", "goal": "MAXIMIZE"}],
        "parameters": [rate, units, kind],
        "automatedStoppingConfig": {"decayCurveStoppingConfig": {"useElapsedTime": True}},
    }
    study = studies.create(parent=LOCATION, studyId="s", body={"studyConfig": config}).execute()["name"]
    studies.get(name=study).execute()
    assert len(studies.list(parent=LOCATION).execute()["studies"]) == 1
    request = {"clientId": "c", "suggestionCount": 2}
    operation = trials.suggest(parent=study, body=request).execute()
    locations.operations().get(name=operation["name"]).execute()
    locations.operations().cancel(name=operation["name"]).execute()
    first, second = (trial["name"] for trial in operation["response"]["trials"])
    measurement = {"stepCount": 1, "elapsedTime": "1.5s", "metrics": [{"metric": "score", "value": 0.5}]}
    trials.addMeasurement(name=first, body={"measurement": measurement}).execute()
    trials.checkEarlyStoppingState(name=first, body={}).execute()
    trials.stop(name=first, body={}).execute()
    trials.complete(name=first, body={}).execute()
    infeasible = {"trialInfeasible": True, "infeasibleReason": "It diverged."}
    trials.complete(name=second, body=infeasible).execute()
    values = [
        {"parameter": "rate", "floatValue": 0.5},
        {"parameter": "units", "intValue": "7"},
        {"parameter": "kind", "stringValue": "b"},
    ]
    own = trials.create(parent=study, body={"parameters": values}).execute()["name"]
    trials.get(name=own).execute()
    assert len(trials.list(parent=study).execute()["trials"]) == 3
    [best] = trials.listOptimalTrials(parent=study, body={}).execute()["trials"]
    assert best["name"] == first
    trials.delete(name=own).execute()
    studies.delete(name=study).execute()
