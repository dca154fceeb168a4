"""google-api-python-client, with only its endpoint changed, drives studies as Google's Optimizer notebooks do."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psutil
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from google.oauth2.credentials import Credentials

import trainshed
from trainshed.cli import main
from trainshed.errors import InvalidArgumentError, NotFoundError
from trainshed.sdk.space import ParameterRange
from trainshed.sdk.studies import AskedTrial
from trainshed.store.database import Database
from trainshed.testing.processes.servers import Caller, RunningServer

with warnings.catch_warnings():  # httplib2 still calls pyparsing by its old names
    warnings.simplefilter("ignore", DeprecationWarning)
    from googleapiclient import discovery
    from googleapiclient.errors import HttpError

PROJECT = "wire-studies"
PARENT = f"projects/{PROJECT}/locations/us-central1"
RATE = {
    "parameter": "rate",
    "type": "DOUBLE",
    "scale_type": "UNIT_LOG_SCALE",
    "double_value_spec": {"min_value": 1e-4, "max_value": 1},
}
UNITS = {"parameter": "units", "type": "INTEGER", "integerValueSpec": {"minValue": "1", "maxValue": 64}}
ACCURACY = {"metric": "accuracy", "goal": "MAXIMIZE"}
CONFIG = {"metrics": [ACCURACY], "parameters": [RATE, UNITS]}


def studies_of(server: RunningServer) -> Any:
    client = discovery.build(
        "ml",
        "v1",
        credentials=Credentials(server.token),  # type: ignore[no-untyped-call]
        client_options={"api_endpoint": server.url},
        static_discovery=True,
        cache_discovery=False,
    )
    return client.projects().locations().studies(), client.projects().locations().operations(), client


@pytest.fixture(scope="module")
def api(server: RunningServer) -> Iterator[tuple[Any, Any]]:
    studies, operations, client = studies_of(server)
    with closing(client):
        yield studies, operations


def create(studies: Any, study_id: str, config: dict[str, Any] = CONFIG) -> str:
    body = {"study_config": config}
    return str(studies.create(parent=PARENT, studyId=study_id, body=body).execute()["name"])


def suggest(studies: Any, study: str, *, count: int = 1, client: str = "worker") -> list[dict[str, Any]]:
    body = {"client_id": client, "suggestion_count": count}
    operation = studies.trials().suggest(parent=study, body=body).execute()
    assert operation["done"] is True
    trials: list[dict[str, Any]] = operation["response"]["trials"]
    return trials


def final(**values: float) -> dict[str, Any]:
    return {"final_measurement": {"step_count": 1, "metrics": [{"metric": k, "value": v} for k, v in values.items()]}}


def refusal(request: Any) -> tuple[int, str]:
    with pytest.raises(HttpError) as error:
        request.execute()
    return error.value.status_code, str(error.value.reason)


def test_a_study_from_its_creation_to_its_end(api: tuple[Any, Any]) -> None:
    studies, operations = api
    study = create(studies, "first_study")
    assert study == f"{PARENT}/studies/first_study"
    body = studies.get(name=study).execute()
    assert body["state"] == "ACTIVE" and body["createTime"]
    assert body["studyConfig"]["parameters"][0]["doubleValueSpec"] == {"minValue": 1e-4, "maxValue": 1.0}
    assert body["studyConfig"]["parameters"][1]["integerValueSpec"] == {"minValue": "1", "maxValue": "64"}
    assert study in [each["name"] for each in studies.list(parent=PARENT).execute()["studies"]]
    assert refusal(studies.create(parent=PARENT, studyId="first_study", body={"studyConfig": CONFIG}))[0] == 409

    request = {"clientId": "w", "suggestionCount": 2}
    operation = studies.trials().suggest(parent=study, body=request).execute()
    assert operation["name"].startswith(f"{PARENT}/operations/")
    assert operations.get(name=operation["name"]).execute() == operation
    assert operations.cancel(name=operation["name"]).execute() == {}
    assert operation["metadata"] | {"createTime": ""} == {
        "@type": "type.googleapis.com/google.cloud.ml.v1.SuggestTrialsMetadata",
        "study": study,
        "clientId": "w",
        "suggestionCount": 2,
        "createTime": "",
    }
    first, second = operation["response"]["trials"]
    assert (first["name"], first["state"], first["clientId"]) == (f"{study}/trials/1", "ACTIVE", "w")
    rate, units = first["parameters"]
    assert rate == {"parameter": "rate", "floatValue": pytest.approx(0.01)}  # the centre
    assert units == {"parameter": "units", "intValue": "33"}
    assert suggest(studies, study, count=2, client="w") == [first, second]  # still its own
    assert suggest(studies, study, client="x")[0]["name"] == f"{study}/trials/3"

    trials = studies.trials()
    for step in (2, 1, 2):
        measurement = {
            "stepCount": step,
            "elapsed_time": {"seconds": step, "nanos": 500_000_000},
            "metrics": [{"metric": "accuracy", "value": step / 10}],
        }
        measured = trials.addMeasurement(name=first["name"], body={"measurement": measurement}).execute()
    assert [(each["stepCount"], each["elapsedTime"]) for each in measured["measurements"]] == [
        ("1", "1.5s"),
        ("2", "2.5s"),
    ]
    check = trials.checkEarlyStoppingState(name=first["name"], body={}).execute()
    assert check["done"] and check["response"]["shouldStop"] is False
    assert trials.stop(name=first["name"], body={}).execute()["state"] == "STOPPING"
    stopping = trials.checkEarlyStoppingState(name=first["name"], body={}).execute()
    assert stopping["response"]["shouldStop"] is True
    done = trials.complete(name=first["name"], body={"trial_infeasible": False, "infeasible_reason": None}).execute()
    assert done["state"] == "COMPLETED" and done["finalMeasurement"]["metrics"][0]["value"] == 0.2
    assert trials.stop(name=first["name"], body={}).execute() == done
    assert trials.get(name=first["name"]).execute() == done
    infeasible = trials.complete(
        name=second["name"], body={"trialInfeasible": True, "infeasibleReason": "diverged"}
    ).execute()
    assert (infeasible["trialInfeasible"], infeasible["infeasibleReason"]) == (True, "diverged")
    assert [each["name"] for each in trials.listOptimalTrials(parent=study, body={}).execute()["trials"]] == [
        first["name"]
    ]

    assert trials.delete(name=second["name"]).execute() == {}
    assert refusal(trials.get(name=second["name"]))[0] == 404
    assert len(trials.list(parent=study).execute()["trials"]) == 2
    assert suggest(studies, study, client="y")[0]["name"] == f"{study}/trials/4"  # no number twice
    assert studies.delete(name=study).execute() == {}
    assert refusal(studies.get(name=study))[0] == 404
    assert refusal(trials.list(parent=study))[0] == 404
    assert refusal(operations.get(name=operation["name"]))[0] == 404


def test_trials_of_users_come_first_and_results_are_imported(api: tuple[Any, Any]) -> None:
    studies, _ = api
    study = create(studies, "own-points")
    values = [{"parameter": "rate", "floatValue": 0.5}, {"parameter": "units", "intValue": 7}]
    requested = studies.trials().create(parent=study, body={"parameters": values}).execute()
    assert requested["state"] == "REQUESTED" and "clientId" not in requested
    imported = {
        "clientId": "w",
        "state": "COMPLETED",
        "parameters": [{"parameter": "rate", "float_value": 0.25}, {"parameter": "units", "int_value": "8"}],
        **final(accuracy=0.9),
    }
    done = studies.trials().create(parent=study, body=imported).execute()
    assert done["state"] == "COMPLETED" and done["finalMeasurement"]["metrics"][0]["value"] == 0.9
    [suggested] = suggest(studies, study)
    assert (suggested["name"], suggested["state"]) == (requested["name"], "ACTIVE")
    assert suggested["parameters"] == [
        {"parameter": "rate", "floatValue": 0.5},
        {"parameter": "units", "intValue": "7"},
    ]


def test_conditional_parameters_as_in_the_notebook(api: tuple[Any, Any]) -> None:
    studies, _ = api
    child = {**RATE, "parent_categorical_values": {"values": ["DNN"]}}
    power = {
        "parameter": "power",
        "type": "DISCRETE",
        "discrete_value_spec": {"values": [1, 2.5]},
        "parentCategoricalValues": {"values": ["LINEAR", "WIDE"]},
    }
    kind = {
        "parameter": "model_type",
        "type": "CATEGORICAL",
        "categorical_value_spec": {"values": ["LINEAR", "WIDE", "DNN"]},
        "child_parameter_specs": [child, power],
    }
    study = create(studies, "conditional", {"metrics": [ACCURACY], "parameters": [kind]})
    kinds = set()
    for number in range(1, 9):
        for trial in suggest(studies, study, count=2):
            values = {each["parameter"]: each for each in trial["parameters"]}
            model = values["model_type"]["stringValue"]
            kinds.add(model)
            assert set(values) == {"model_type", "rate" if model == "DNN" else "power"}
            body = {"trialInfeasible": True} if number == 2 else final(accuracy=number / 10)
            studies.trials().complete(name=trial["name"], body=body).execute()
    assert kinds == {"LINEAR", "WIDE", "DNN"}


def test_several_metrics_have_a_front(api: tuple[Any, Any]) -> None:
    studies, _ = api
    config = {
        "metrics": [{"metric": "r_sin", "goal": "MINIMIZE"}, {"metric": "r_cos", "goal": "MAXIMIZE"}],
        "parameters": [
            {"parameter": "r", "type": "DOUBLE", "doubleValueSpec": {"minValue": 0, "maxValue": 1}},
            {"parameter": "theta", "type": "DOUBLE", "doubleValueSpec": {"minValue": 0, "maxValue": 1.57}},
        ],
    }
    study, results = create(studies, "two_metrics", config), {}
    for _ in range(2):
        for trial in suggest(studies, study, count=5):
            r, theta = (each["floatValue"] for each in trial["parameters"])
            values = {"r_cos": r * math.cos(theta), "r_sin": r * math.sin(theta)}
            done = studies.trials().complete(name=trial["name"], body=final(**values)).execute()
            assert [each["metric"] for each in done["finalMeasurement"]["metrics"]] == ["r_sin", "r_cos"]
            results[trial["name"]] = (-values["r_sin"], values["r_cos"])
    front = {each["name"] for each in studies.trials().listOptimalTrials(parent=study, body={}).execute()["trials"]}
    assert front == {
        name
        for name, (a, b) in results.items()
        if not any(c >= a and d >= b and (c, d) != (a, b) for c, d in results.values())
    }


def test_a_space_that_is_used_up_answers_429(api: tuple[Any, Any]) -> None:
    studies, _ = api
    small = {"parameter": "n", "type": "INTEGER", "integerValueSpec": {"minValue": 1, "maxValue": 3}}
    for algorithm in ("GRID_SEARCH", "RANDOM_SEARCH", "GAUSSIAN_PROCESS_BANDIT"):
        config = {"metrics": [ACCURACY], "parameters": [small], "algorithm": algorithm}
        study = create(studies, f"small_{algorithm}", config)
        values = [trial["parameters"][0]["intValue"] for trial in suggest(studies, study, count=5)]
        assert sorted(values) == ["1", "2", "3"]
        if algorithm == "GRID_SEARCH":
            assert values == ["1", "2", "3"]
        status, reason = refusal(
            studies.trials().suggest(parent=study, body={"clientId": "other", "suggestionCount": 1})
        )
        assert (status, "its space has 3" in reason) == (429, True)
        assert studies.get(name=study).execute()["state"] == "COMPLETED"


@pytest.mark.parametrize(
    ("rule", "stops"), [("medianAutomatedStoppingConfig", True), ("decayCurveStoppingConfig", True), ("", False)]
)
def test_early_stopping_follows_the_rule_of_the_study(api: tuple[Any, Any], rule: str, stops: bool) -> None:
    studies, _ = api
    stopping = {"automatedStoppingConfig": {rule: {"useElapsedTime": False}}} if rule else {}
    study = create(studies, f"stopping_{rule or 'none'}", {**CONFIG, **stopping})
    trials = studies.trials()

    def curve(name: str, level: float) -> None:
        for step in (1, 2, 3):
            metrics = [{"metric": "accuracy", "value": level + step / 100}]
            trials.addMeasurement(name=name, body={"measurement": {"stepCount": step, "metrics": metrics}}).execute()

    for trial in suggest(studies, study, count=8):
        curve(trial["name"], 0.8)
        trials.complete(name=trial["name"], body={}).execute()
    good, bad = suggest(studies, study, count=2)
    curve(good["name"], 0.9)
    curve(bad["name"], 0.1)
    answers = [
        trials.checkEarlyStoppingState(name=each["name"], body={}).execute()["response"]["shouldStop"]
        for each in (good, bad)
    ]
    assert answers == [False, stops]


def test_what_is_wrong_is_named(api: tuple[Any, Any], server: RunningServer) -> None:
    studies, _ = api
    study = create(studies, "errors")
    [trial] = suggest(studies, study)
    trials = studies.trials()
    double = {**RATE, "double_value_spec": {"min_value": 0, "max_value": 1}}
    grid = {**CONFIG, "algorithm": "GRID_SEARCH"}
    cases = [
        (studies.create(parent=PARENT, studyId="a b", body={"studyConfig": CONFIG}), "study_id"),
        (studies.create(parent=PARENT, studyId="a", body={}), "study.study_config"),
        (
            studies.create(parent=PARENT, studyId="a", body={"studyConfig": {"metrics": [ACCURACY]}}),
            "study.study_config.parameters",
        ),
        (
            studies.create(parent=PARENT, studyId="a", body={"studyConfig": {**CONFIG, "parameters": [double]}}),
            "study.study_config.parameters[0]",
        ),
        (studies.create(parent=PARENT, studyId="a", body={"studyConfig": grid}), "study.study_config.algorithm"),
        (trials.suggest(parent=study, body={"suggestionCount": 1}), "client_id"),
        (trials.suggest(parent=study, body={"clientId": "w"}), "suggestion_count"),
        (trials.complete(name=trial["name"], body={}), "final_measurement"),
        (trials.complete(name=trial["name"], body=final(loss=1)), "final_measurement.metrics"),
        (trials.create(parent=study, body={"parameters": []}), "trial.parameters"),
        (trials.addMeasurement(name=trial["name"], body={}), "measurement"),
    ]
    for request, field in cases:
        status, reason = refusal(request)
        assert (status, field in reason) == (400, True), reason
    not_a_number = trials.complete(name=trial["name"], body=final(accuracy=float("nan")))
    status, reason = refusal(not_a_number)
    assert (status, "trialInfeasible" in reason) == (400, True)
    trials.complete(name=trial["name"], body=final(accuracy=1)).execute()
    assert refusal(trials.complete(name=trial["name"], body=final(accuracy=1)))[0] == 400
    call = Caller(server.url)
    assert call("POST", f"/v1/{study}/trials/none:stop", token=server.token)[0] == 404
    assert call("GET", f"/v1/{PARENT}/operations/none", token=server.token)[0] == 404


def test_the_python_client_asks_and_tells(server: RunningServer) -> None:
    with trainshed.connect(server.url, token=server.token, project=PROJECT) as ty:
        space: dict[str, ParameterRange] = {
            "rate": (1e-4, 1.0, "log"),
            "units": (1, 64),
            "batch": [32, 64.5],
            "kind": ["cnn", "mlp"],
        }
        study = ty.studies.create("asked", space, minimize="loss")
        assert study.best is None and study.rows() == []
        for number in range(1, 6):
            trial = study.ask()
            assert study.ask() == trial and trial.number == number
            study.tell(trial, None if number == 2 else abs(trial["units"] - 20))
        own = study.try_next({"rate": 0.5, "units": 20, "batch": 32.0, "kind": "mlp"})
        trial = ty.studies.get("asked").ask()
        assert (trial.number, trial.values) == (own.number, own.values)
        assert study.tell(trial.number, {"loss": 0.0}).metrics == {"loss": 0.0}
        best = study.best
        assert best is not None and best.number == trial.number
        rows = study.rows()
        assert [row["trial"] for row in rows] == [1, 2, 3, 4, 5, 6] and "loss" not in rows[1]
        assert "<table" in study._repr_html_()
        assert "asked" in [each.name for each in ty.studies.list()]
        study.delete()
        with pytest.raises(NotFoundError):
            ty.studies.get("asked")
        with pytest.raises(InvalidArgumentError):
            ty.studies.create("odd", {"rate": (0.0, 1.0, "cubic")})


def test_the_python_client_runs_a_function_in_a_study(
    server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with trainshed.connect(server.url, token=server.token, project=PROJECT) as ty:
        study = ty.studies.create("run", {"x": (0, 4)}, minimize="loss")

        def fails_at_three(trial: AskedTrial) -> float:
            if trial.number == 3:
                raise KeyError("no data")
            return math.nan if trial.number == 2 else float(trial["x"])

        with pytest.raises(KeyError):
            study.run(fails_at_three, trials=9)
        study.run(lambda trial: {"loss": float(trial["x"])}, trials=9)  # five points; four were told before it ends
        assert sorted(trial["x"] for trial in study.trials) == [0, 1, 2, 3, 4]
        assert [trial.infeasible for trial in study.trials] == [False, True, False, False, False]
        lines = capsys.readouterr().out.splitlines()
        assert [line.partition(":")[0] for line in lines] == [f"{n} of 9 trials" for n in (1, 2, 1, 2, 3)]
        assert "trial 2 infeasible, best trial 1" in lines[1]
        study.delete()


def test_the_command_line_shows_studies(server: RunningServer, api: tuple[Any, Any]) -> None:
    studies, _ = api
    study = create(studies, "shown")
    [trial] = suggest(studies, study)
    studies.trials().complete(name=trial["name"], body=final(accuracy=0.5)).execute()

    def run(*words: str) -> str:
        environment = {"TRAINSHED_HOME": str(server.home), "TRAINSHED_PROJECT": PROJECT}
        result = CliRunner().invoke(main, ["studies", *words], prog_name="trainshed", env=environment)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert study in [each["name"] for each in json.loads(run("list", "--format", "json"))]
    assert json.loads(run("describe", "shown", "--format", "json"))["studyConfig"]["metrics"] == [ACCURACY]
    assert "rate=0.01 units=33" in run("trials", "shown") and "accuracy=0.5" in run("trials", "shown")
    run("delete", "shown", "--quiet")
    assert refusal(studies.get(name=study))[0] == 404


def test_the_console_reads_studies_of_all_locations_with_their_trials(
    server: RunningServer, api: tuple[Any, Any]
) -> None:
    caller = Caller(server.url)
    create(api[0], "looked_at", {"metrics": [ACCURACY], "parameters": [RATE, UNITS]})
    suggest(api[0], f"{PARENT}/studies/looked_at")
    [listed] = [
        each
        for each in server.call("GET", f"/trainshed/v1/projects/{PROJECT}/studies?pageSize=50")["studies"]
        if each["study"] == "looked_at"
    ]
    assert (listed["location"], listed["trials"], listed["completed"], listed["best"]) == ("us-central1", 1, 0, None)
    own = f"/trainshed/v1/{PARENT}/studies"
    table = server.call("GET", f"{own}/looked_at/search?points=0")
    assert [(each["state"], each["client"]) for each in table["trials"]] == [("ACTIVE", "worker")]
    assert [each["scale"] for each in table["parameters"]] == ["LOG", "NONE"]
    status, answer = caller("GET", f"{own}/absent/search", token=server.token)
    assert (status, answer["error"]["status"]) == (404, "NOT_FOUND")
    status, answer = caller("GET", f"{own}/looked_at/search?points=20001", token=server.token)
    assert (status, "points" in answer["error"]["message"]) == (400, True)


def test_eight_clients_share_a_study(server: RunningServer) -> None:
    call = Caller(server.url)
    study = f"{PARENT}/studies/shared"
    status, _ = call("POST", f"/v1/{PARENT}/studies?studyId=shared", token=server.token, body={"studyConfig": CONFIG})
    assert status == 200
    names: list[str] = []
    faults: list[object] = []

    def work(client: str) -> None:
        for _ in range(4):
            status, operation = call(
                "POST",
                f"/v1/{study}/trials:suggest",
                token=server.token,
                body={"clientId": client, "suggestionCount": 1},
            )
            if status != 200:
                faults.append(operation)
                return
            [trial] = operation["response"]["trials"]
            names.append(trial["name"])
            status, body = call("POST", f"/v1/{trial['name']}:complete", token=server.token, body=final(accuracy=0.5))
            if status != 200:
                faults.append(body)

    threads = [threading.Thread(target=work, args=(f"client-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(set(names)) == len(names) == 32
    trials = call("GET", f"/v1/{study}/trials", token=server.token)[1]["trials"]
    points = {str(trial["parameters"]) for trial in trials}
    assert len(points) == 32  # and no point twice


def test_the_next_suggestion_survives_all_kills(own_server: RunningServer) -> None:
    """The search process is killed, then the server. Each time the suggestion is the one that would have come."""

    def ask(client: str) -> dict[str, Any]:
        body = {"clientId": client, "suggestionCount": 1}
        answer = own_server.call("POST", f"/v1/{PARENT}/studies/killed/trials:suggest", body)
        trial: dict[str, Any] = answer["response"]["trials"][0]
        return trial

    own_server.call("POST", f"/v1/{PARENT}/studies?studyId=killed", {"studyConfig": CONFIG})
    for number in range(1, 7):
        trial = ask("w")
        own_server.call("POST", f"/v1/{trial['name']}:complete", final(accuracy=number / 10))
    [searcher] = _searchers(own_server)
    os.kill(searcher.pid, signal.SIGKILL)
    seventh = ask("w")
    [searcher] = _searchers(own_server)
    own_server.kill()
    psutil.wait_procs([searcher], timeout=60)
    assert not searcher.is_running()  # it ends with its server
    own_server.start()
    assert ask("w") == seventh  # a client that comes back gets its trial again
    own_server.call("POST", f"/v1/{PARENT}/studies/killed/trials/7:complete", final(accuracy=0.1))
    eighth = ask("w")
    own_server.kill()
    with closing(Database(own_server.home / "state.db")) as database, database.write() as tx:
        # as if the server had been killed before it wrote the eighth trial
        tx.run(sa.text("delete from study_trials where number = 8"))
        tx.run(sa.text("update studies set last_trial = 7"))
    own_server.start()
    again = ask("w")
    assert (again["name"], again["parameters"]) == (eighth["name"], eighth["parameters"])


def _searchers(server: RunningServer) -> list[psutil.Process]:
    children = psutil.Process(server.pid).children()
    return [child for child in children if "trainshed.search" in child.cmdline()]
