"""Every method of the ml v1 API that google-api-python-client knows: served, or refused as not served. None is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from trainshed.testing.processes.servers import Caller, RunningServer

DOCUMENT = json.loads((files("googleapiclient") / "discovery_cache" / "documents" / "ml.v1.json").read_text())

#: the methods that this version serves; one that is added to the server is added here
SERVED = {
    "ml.projects.predict",
    "ml.projects.explain",
    "ml.projects.getConfig",
    "ml.projects.jobs.cancel",
    "ml.projects.jobs.create",
    "ml.projects.jobs.get",
    "ml.projects.jobs.getIamPolicy",
    "ml.projects.jobs.list",
    "ml.projects.jobs.patch",
    "ml.projects.jobs.setIamPolicy",
    "ml.projects.jobs.testIamPermissions",
    "ml.projects.locations.get",
    "ml.projects.locations.list",
    "ml.projects.locations.operations.cancel",
    "ml.projects.locations.operations.get",
    "ml.projects.locations.studies.create",
    "ml.projects.locations.studies.delete",
    "ml.projects.locations.studies.get",
    "ml.projects.locations.studies.list",
    "ml.projects.locations.studies.trials.addMeasurement",
    "ml.projects.locations.studies.trials.checkEarlyStoppingState",
    "ml.projects.locations.studies.trials.complete",
    "ml.projects.locations.studies.trials.create",
    "ml.projects.locations.studies.trials.delete",
    "ml.projects.locations.studies.trials.get",
    "ml.projects.locations.studies.trials.list",
    "ml.projects.locations.studies.trials.listOptimalTrials",
    "ml.projects.locations.studies.trials.stop",
    "ml.projects.locations.studies.trials.suggest",
    "ml.projects.models.create",
    "ml.projects.models.delete",
    "ml.projects.models.get",
    "ml.projects.models.getIamPolicy",
    "ml.projects.models.list",
    "ml.projects.models.patch",
    "ml.projects.models.setIamPolicy",
    "ml.projects.models.testIamPermissions",
    "ml.projects.models.versions.create",
    "ml.projects.models.versions.delete",
    "ml.projects.models.versions.get",
    "ml.projects.models.versions.list",
    "ml.projects.models.versions.patch",
    "ml.projects.models.versions.setDefault",
    "ml.projects.operations.cancel",
    "ml.projects.operations.get",
    "ml.projects.operations.list",
}


def methods(resource: dict[str, Any] = DOCUMENT) -> Iterator[dict[str, Any]]:
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from methods(inner)


METHODS = sorted(methods(), key=lambda method: str(method["id"]))


def path_of(method: dict[str, Any]) -> str:
    known = {"projectsId": "walk-project", "locationsId": "local"}
    return "/" + re.sub(r"\{(\w+)\}", lambda m: known.get(m[1], "none_such"), method["flatPath"])


@pytest.fixture(scope="module")
def answers(server: RunningServer) -> dict[str, tuple[int, Any]]:
    call = Caller(server.url)
    return {
        method["id"]: call(
            method["httpMethod"],
            path_of(method),
            token=server.token,
            body={} if "request" in method else None,
        )
        for method in METHODS
    }


def test_the_table_of_methods(answers: dict[str, tuple[int, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    served = {name for name, (status, _) in answers.items() if status != 501}
    with capsys.disabled():
        print(f"\n\nml v1, revision {DOCUMENT['revision']}: {len(served)} of {len(answers)} methods are served")
        for name in sorted(answers):
            print(f"  {'served' if name in served else '501   '}  {name}")
    assert served == SERVED


@pytest.mark.parametrize("name", [method["id"] for method in METHODS])
def test_no_method_is_unknown_and_none_breaks(answers: dict[str, tuple[int, Any]], name: str) -> None:
    status, body = answers[name]
    assert status < 500 or status == 501, body
    assert status not in (401, 403, 405), body
    if status != 200:
        error = body["error"]
        assert error["code"] == status
        assert "There is nothing at" not in error["message"]
    if status == 501:
        assert error["status"] == "UNIMPLEMENTED"
        assert name in error["message"]


def test_predict_finds_models_and_versions_too(server: RunningServer) -> None:
    call = Caller(server.url)
    for place in ("/models/m", "/models/m/versions/v"):
        for verb in ("predict", "explain"):
            path = f"/v1/projects/walk-project{place}:{verb}"
            status, body = call("POST", path, token=server.token, body={"instances": []})
            assert (status, body["error"]["status"]) == (404, "NOT_FOUND")
            assert "model m" in body["error"]["message"], "the path is not known at all"


def test_what_the_api_does_not_have_is_not_found(server: RunningServer) -> None:
    call = Caller(server.url)
    for path in ("/v1/projects/walk-project/jorbs", "/v2/projects/walk-project/jobs", "/v1/projects/walk-project"):
        status, body = call("GET", path, token=server.token)
        assert (status, body["error"]["status"]) == (404, "NOT_FOUND")
