"""New versions under constant load: created, made the default, split, rolled back, replayed and deleted."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.reliability.reports import FaultReport, record_report
from trainshed.testing.reliability.rollouts import run, run_batch
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.prediction_load import PredictionLoad

SAYS = "return [{word!r}] * len(instances)"
LATER = "sum(row) if len(row) < 3 else -1 for row in instances"
THREADS = 4
SOAK_ROLLOUTS = 100
REPLAYS = 50  #: more than the server has threads for other requests


@pytest.fixture(scope="module")
def digits(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    """A model with two versions that say their names."""
    deployer = Deployer(framework_server, "rollout", tmp_path_factory.mktemp("digits"), model="digits")
    for version in ("v1", "v2"):
        deployer.deploy_routine(version, answer=SAYS.format(word=version))
    return deployer


def make_default(deployer: Deployer, version: str) -> None:
    deployer.server.call("POST", f"{deployer.path}/versions/{version}:setDefault", {})


def own(deployer: Deployer, verb: str, body: dict[str, Any]) -> Any:
    return deployer.server.call("POST", f"/trainshed{deployer.path}{verb}", body)


@pytest.mark.fault("F51")
def test_no_request_fails_while_defaults_are_switched(digits: Deployer) -> None:
    with PredictionLoad(digits, threads=THREADS).going() as load:
        load.wait_for_more()
        for number in range(50):
            version = "v2" if number % 2 else "v1"
            make_default(digits, version)
            assert digits.predict("", 1) == [version]  # what is acknowledged is in force
            load.wait_for_more(THREADS)
    assert set(load.counts) == {(200, "v1"), (200, "v2")}


@pytest.mark.fault("F51")
def test_no_request_fails_while_versions_are_rolled_out(framework_server: RunningServer, tmp_path: Path) -> None:
    report = run_batch(Deployer(framework_server, "rollouts", tmp_path), seed=1, batch=0, rounds=2)
    assert [str(each) for each in report.violations] == []
    assert report.operations > 0


@pytest.mark.soak  # two rollouts are in every run
@pytest.mark.timeout(0)
@pytest.mark.fault("F51")
def test_no_request_fails_while_a_hundred_versions_are_rolled_out(tmp_path: Path) -> None:
    reports: list[FaultReport] = []

    def tell(report: FaultReport) -> None:
        record_report("F51", report)
        reports.append(report)

    assert [str(each) for each in run(SOAK_ROLLOUTS, 1, tmp_path, tell)] == []
    assert sum(report.rounds for report in reports) == SOAK_ROLLOUTS


def test_after_a_switch_the_new_default_answers(digits: Deployer) -> None:
    for version in ("v1", "v2", "v1"):
        make_default(digits, version)
        assert digits.predict("", 1) == [version]


def test_a_default_can_be_rolled_back(digits: Deployer) -> None:
    make_default(digits, "v1")
    make_default(digits, "v2")
    own(digits, ":rollback", {})
    assert digits.predict("", 1) == ["v1"]


def test_traffic_is_split_by_weight_and_told(digits: Deployer) -> None:
    make_default(digits, "v1")
    own(digits, ":split", {"weights": {"v1": 50, "v2": 50}})
    counts = Counter(digits.predict("", 1)[0] for _ in range(100))
    assert 20 <= counts["v2"] <= 80  # less likely to fail than the disk: one in a thousand million
    own(digits, ":split", {"weights": {"v2": 100}})
    assert {digits.predict("", 1)[0] for _ in range(20)} == {"v2"}
    own(digits, ":split", {"weights": {}})
    assert {digits.predict("", 1)[0] for _ in range(20)} == {"v1"}
    traffic = digits.server.call("GET", f"/trainshed{digits.path}")["traffic"]
    assert traffic["v2"]["count"] >= 20
    assert traffic["v2"]["errors"] == 0
    assert traffic["v2"]["p99Ms"] >= traffic["v2"]["p50Ms"] > 0


BAD = {
    "slow": "__import__('time').sleep(0.2); return ['v1'] * len(instances)",
    "failing": "raise ValueError('no')",
    "crashing": "os.kill(os.getpid(), signal.SIGKILL)",
    "wrong": "return ['wrong'] * len(instances)",
}


def roll_out(deployer: Deployer, version: str, **plan: Any) -> dict[str, Any]:
    """Start a rollout under load, and wait for its end. Nobody gets an error or a wrong answer after that."""
    path = f"/trainshed{deployer.path}/rollouts"
    with PredictionLoad(deployer, threads=THREADS).going() as load:
        load.wait_for_more()
        started = deployer.server.call("POST", path, {"version": version, "minRequests": 20, "stepSeconds": 0, **plan})
        ended: dict[str, Any] = eventually(
            lambda: deployer.server.call("GET", f"{path}/{started['id']}"), lambda body: body["state"] != "RUNNING"
        )
        load.wait_for_more(THREADS)  # those that were under way
        bad_before = {said: count for said, count in load.counts.items() if said != (200, "v1")}
        load.wait_for_more(100)
    if ended["state"] == "ROLLED_BACK":
        assert {said: count for said, count in load.counts.items() if said != (200, "v1")} == bad_before
    return {**ended, "bad": sum(bad_before.values())}


LIMITS = ["error_rate>1%", "p50>3x", "changed>5%"]


@pytest.mark.fault("F51")
@pytest.mark.parametrize(
    "name",
    # what remains is in bench/rollout.py and, with counts that a test gives, in tests/unit/domain/test_rollout.py
    ["wrong", *(pytest.param(name, marks=pytest.mark.soak) for name in ("slow", "failing", "crashing"))],
)
def test_a_bad_version_is_rolled_back_under_load(digits: Deployer, name: str) -> None:
    make_default(digits, "v1")
    digits.deploy_routine(name, answer=BAD[name])
    in_shadow = roll_out(digits, name, shadowSeconds=600, abortIf=LIMITS)
    assert (in_shadow["state"], in_shadow["stage"], in_shadow["bad"]) == ("ROLLED_BACK", 0, 0), in_shadow
    if name != "wrong":  # which only shadow traffic can tell
        in_steps = roll_out(digits, name, steps=[10, 50, 100], abortIf=LIMITS[:2])
        assert (in_steps["state"], in_steps["stage"]) == ("ROLLED_BACK", 0), in_steps
        assert in_steps["bad"] <= 20


def test_a_good_version_is_promoted_under_load(digits: Deployer) -> None:
    make_default(digits, "v1")
    digits.deploy_routine("good", answer=SAYS.format(word="v1"))
    plan = {"shadowSeconds": 0.1, "steps": [20, 100], "abortIf": ["error_rate>1%", "changed>1%"]}
    ended = roll_out(digits, "good", **plan)
    assert (ended["state"], len(ended["events"]), ended["bad"]) == ("PROMOTED", 4, 0), ended
    own(digits, ":rollback", {})
    assert digits.predict("", 1) == ["v1"]


def test_a_replay_shows_what_another_version_says(framework_server: RunningServer, tmp_path: Path) -> None:
    server = framework_server
    model = Deployer(server, "replays", tmp_path, model="sums")
    model.deploy_routine("v1", answer="return [sum(row) for row in instances]")
    model.deploy_routine("v2", answer=f"return __import__('time').sleep(0.1) or [{LATER}]")
    logging = {"samplingPercentage": 1.0, "bigqueryTableName": f"gs://{model.bucket}/requests"}
    patch = f"{model.path}/versions/v1?updateMask=requestLoggingConfig"
    model.finish(server.call("PATCH", patch, {"requestLoggingConfig": logging}))
    model.until_answers("v1", [1])
    for row in ([1, 2], [3, 4], [1, 2, 3]):
        assert model.predict("v1", row) == [sum(row)]
    report = own(model, "/versions/v2:replay", {"count": 3})
    assert (report["compared"], report["changed"]) == (3, 1)
    assert report["examples"] == [{"instance": [1, 2, 3], "before": 6, "after": -1}]
    assert all(report["latencyMs"][when][which] > 0 for when in ("before", "after") for which in ("p50", "p99"))
    assert own(model, "/versions/v1:replay", {"count": 100})["changed"] == 0
    listed = server.call("GET", f"/storage/v1/b/{model.bucket}/o?prefix=requests/sums/")["items"]
    assert all(item["name"].endswith(".jsonl") for item in listed)
    status, answer = Caller(server.url)(
        "POST", f"/trainshed{model.path}/versions/v2:replay", token=server.token, body={"count": 0}
    )
    assert (status, "whole number" in json.dumps(answer)) == (400, True)
    _check_many_replays(model)


def _check_many_replays(model: Deployer) -> None:
    """Many replays at once: most are refused, and other requests do not wait behind the rest."""
    server = model.server
    outcomes: list[tuple[int, float]] = []

    def replay() -> None:
        began = time.monotonic()
        path = f"/trainshed{model.path}/versions/v2:replay"
        status, _ = Caller(server.url)("POST", path, token=server.token, body={"count": 4})
        outcomes.append((status, time.monotonic() - began))

    with ThreadPoolExecutor(REPLAYS) as pool:
        replays = [pool.submit(replay) for _ in range(REPLAYS)]
        eventually(lambda: [status for status, _ in outcomes], lambda statuses: 429 in statuses)
        began = time.monotonic()
        server.call("GET", f"/v1/projects/{model.project}/jobs")
        waited_s = time.monotonic() - began
        for each in replays:
            each.result()
    assert {status for status, _ in outcomes} == {200, 429}
    assert waited_s < statistics.median(seconds for status, seconds in outcomes if status == 200)


def test_gcloud_predicts(digits: Deployer, tmp_path: Path) -> None:
    if shutil.which("gcloud") is None:
        pytest.skip("gcloud is not installed here, and Debian has no package of it")
    make_default(digits, "v1")
    instances = tmp_path / "instances.json"
    instances.write_text("1\n2\n")
    env = {key: value for key, value in os.environ.items() if not key.startswith("CLOUDSDK_")} | {
        "CLOUDSDK_CONFIG": str(tmp_path / "gcloud"),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_ML": f"{digits.server.url}/",
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(digits.server.home / "token"),
        "CLOUDSDK_CORE_PROJECT": digits.project,
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false",
        "CLOUDSDK_SURVEY_DISABLE_PROMPTS": "true",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    command = ["gcloud", "ai-platform", "predict", "--model", "digits", "--json-instances", str(instances)]
    done = subprocess.run([*command, "--region", "global"], env=env, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['v1', 'v1']"
