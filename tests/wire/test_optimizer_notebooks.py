"""The calls of Google's Optimizer notebooks, by Google's clients. They read the API's document from a public bucket."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import google.cloud.storage as storage
import pytest
from google.api_core.client_options import ClientOptions
from google.oauth2.credentials import Credentials

from trainshed.testing.processes.servers import RunningServer

with warnings.catch_warnings():  # httplib2 still calls pyparsing by its old names
    warnings.simplefilter("ignore", DeprecationWarning)
    from googleapiclient import discovery
    from googleapiclient.errors import HttpError

PROJECT = "optimizer-notebooks"
PARENT = f"projects/{PROJECT}/locations/us-central1"


def read_document(server: RunningServer) -> bytes:
    """As the notebooks read it; only the endpoint differs."""
    credentials = Credentials(token=server.token)  # type: ignore[no-untyped-call]
    options = ClientOptions(api_endpoint=server.url)
    with closing(storage.Client(PROJECT, credentials=credentials, client_options=options)) as client:
        bucket = client.get_bucket("caip-optimizer-public")
        blob = bucket.get_blob("api/ml_public_google_rest_v1.json")
        document = blob.download_as_bytes()  # checks its MD5
        assert len(document) == blob.size
        assert bucket.get_blob("api/another.json") is None
        return bytes(document)


@pytest.fixture(scope="module")
def ml(server: RunningServer) -> Iterator[Any]:
    credentials = Credentials(token=server.token)  # type: ignore[no-untyped-call]
    with closing(discovery.build_from_document(service=read_document(server), credentials=credentials)) as client:
        yield client


def create(ml: Any, study_id: str, config: dict[str, Any]) -> str:
    """Create a study, or load it if it exists, as all of the notebooks do."""
    studies = ml.projects().locations().studies()
    try:
        found = studies.create(body={"study_config": config}, parent=PARENT, studyId=study_id).execute()
    except HttpError as error:
        assert error.resp.status == 409
        found = studies.get(name=f"{PARENT}/studies/{study_id}").execute()
    return str(found["name"])


def suggested(ml: Any, study: str, client: str, count: int) -> list[str]:
    """The numbers of suggested trials, once the operation is done."""
    trials = ml.projects().locations().studies().trials()
    body = {"client_id": client, "suggestion_count": count}
    name = trials.suggest(parent=study, body=body).execute()["name"]
    get = ml.projects().locations().operations().get(name=f"{PARENT}/operations/{name.split('/')[-1]}")
    operation = get.execute()
    assert operation["done"], "it is done at the first look, so no client waits"
    return [trial["name"].split("/")[-1] for trial in get.execute()["response"]["trials"]]


def test_conditional_parameters_are_suggested_completed_imported_and_listed(ml: Any) -> None:
    def rate(name: str, parents: list[str]) -> dict[str, Any]:
        return {
            "parameter": name,
            "type": "DOUBLE",
            "double_value_spec": {"min_value": 0.00001, "max_value": 1.0},
            "scale_type": "UNIT_LOG_SCALE",
            "parent_categorical_values": {"values": parents},
        }

    children = [rate("learning_rate", ["LINEAR", "WIDE_AND_DEEP"]), rate("dnn_learning_rate", ["DNN", "WIDE_AND_DEEP"])]
    kind = {
        "parameter": "model_type",
        "type": "CATEGORICAL",
        "categorical_value_spec": {"values": ["LINEAR", "DNN", "WIDE_AND_DEEP"]},
        "child_parameter_specs": children,
    }
    metric = {"metric": "accuracy", "goal": "MAXIMIZE"}
    config = {"algorithm": "ALGORITHM_UNSPECIFIED", "parameters": [kind], "metrics": [metric]}
    study = create(ml, "conditional", config)
    assert create(ml, "conditional", config) == study
    trials, seen = ml.projects().locations().studies().trials(), set()
    for turn in range(6):
        for number in suggested(ml, study, "client1", 2):
            trial = trials.get(name=f"{study}/trials/{number}").execute()
            assert trial["state"] not in ("COMPLETED", "INFEASIBLE")
            values = {each["parameter"]: each for each in trial["parameters"]}
            model = values["model_type"]["stringValue"]
            seen.add(model)
            wanted = {spec["parameter"] for spec in children if model in spec["parent_categorical_values"]["values"]}
            assert values.keys() == {"model_type", *wanted}
            if turn == 1:
                body: dict[str, Any] = {"trial_infeasible": True, "infeasible_reason": "Errors with the training"}
            else:
                accuracy = sum(-abs(math.log10(values[name]["floatValue"]) + 2) for name in wanted)
                measured = {"step_count": 1, "metrics": [{"metric": "accuracy", "value": accuracy}]}
                body = {"final_measurement": measured}
            assert trials.complete(name=trial["name"], body=body).execute()["state"] == "COMPLETED"
    assert seen == {"LINEAR", "DNN", "WIDE_AND_DEEP"}
    imported = {
        "client_id": "client1",
        "state": "COMPLETED",
        "final_measurement": {"step_count": 1, "metrics": [{"metric": "accuracy", "value": 0.5}]},
        "parameters": [
            {"parameter": "model_type", "string_value": "LINEAR"},
            {"parameter": "learning_rate", "float_value": 0.02},
        ],
    }
    own = trials.create(parent=study, body=imported).execute()
    listed = trials.list(parent=study).execute()["trials"]
    assert (len(listed), listed[-1]["name"]) == (13, own["name"])
    assert [each["name"] for each in trials.listOptimalTrials(parent=study, body={}).execute()["trials"]] == [
        own["name"]
    ]


def test_two_objectives_five_at_a_time(ml: Any) -> None:
    def between(name: str, most: float) -> dict[str, Any]:
        return {"parameter": name, "type": "DOUBLE", "double_value_spec": {"min_value": 0, "max_value": most}}

    metrics = [{"metric": "y1", "goal": "MINIMIZE"}, {"metric": "y2", "goal": "MAXIMIZE"}]
    parameters = [between("r", 1), between("theta", 1.57)]
    config = {"algorithm": "ALGORITHM_UNSPECIFIED", "parameters": parameters, "metrics": metrics}
    study = create(ml, "two_objectives", config)
    trials, found = ml.projects().locations().studies().trials(), {}
    for _ in range(3):
        for number in suggested(ml, study, "client1", 5):
            trial = trials.get(name=f"{study}/trials/{number}").execute()
            r, theta = (each["floatValue"] for each in trial["parameters"])
            y1, y2 = r * math.sin(theta), r * math.cos(theta)
            values = [{"metric": "y1", "value": y1}, {"metric": "y2", "value": y2}]
            measurement = {"step_count": 1, "metrics": values}
            trials.addMeasurement(name=trial["name"], body={"measurement": measurement}).execute()
            trials.complete(name=trial["name"], body={"final_measurement": measurement}).execute()
            found[trial["name"]] = (y1, y2)
    assert len(found) == 15
    front = {each["name"] for each in trials.listOptimalTrials(parent=study, body={}).execute()["trials"]}
    for name, (y1, y2) in found.items():
        beaten = any(a <= y1 and b >= y2 and (a, b) != (y1, y2) for a, b in found.values())
        assert (name in front) == (not beaten)
