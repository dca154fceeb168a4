"""Models and versions as a user types them: made, listed, changed, split, rolled back, deleted."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.processes.shells import TRAINSHED, Shell
from trainshed.testing.workloads.saved_models import saved_models

PROJECT = "cli-models"
BUCKET = f"gs://{PROJECT}"
START = "Creating version (this might take a few minutes)..."


@pytest.fixture(scope="module")
def shell(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    found = Shell(framework_server, tmp_path_factory.mktemp("models"), PROJECT)
    found("buckets", "mb", BUCKET)
    found("buckets", "cp", "-r", saved_models() / "times1", saved_models() / "times2", BUCKET)
    return found


def deploy(shell: Shell, model: str, version: str, *words: object) -> str:
    """Create a version of its own kind: v1 answers x, v2 answers 2x. What was said on the way."""
    factor = version.removeprefix("v")
    origin = ("--origin", f"{BUCKET}/times{factor}") if "--origin" not in words else ()
    return shell("versions", "create", version, "--model", model, *origin, *words)[1]


def ask(shell: Shell, model: str, *words: str) -> float:
    flags = ("--json-instances", "-", "--format", "json")
    [answer] = json.loads(shell("predict", "--model", model, *words, *flags, stdin="[3.0]\n")[0])["predictions"]
    return round(float(answer["y"]), 6)


@pytest.fixture(scope="module")
def line(shell: Shell) -> str:
    """A model with two versions; the first one is the default."""
    shell("models", "create", "line", "--regions", "us-central1", "--enable-logging", "--labels", "team=a")
    deploy(shell, "line", "v1", "--framework", "TENSORFLOW")
    deploy(shell, "line", "v2", "--description", "twice", "--labels", "kind=test")
    return "line"


@pytest.mark.timeout(900)
def test_a_model_is_made_listed_described_changed_and_deleted(shell: Shell) -> None:
    empty = shell("models", "list", "--project", "cli-models-none")
    assert empty == ("", "Listed 0 items.\n")
    out, said = shell("ml-engine", "models", "create", "--regions", "us-east1", "plain", "--description", "one")
    assert (out, said) == ("", f"Created ai platform model [projects/{PROJECT}/models/plain].\n")
    _, said = shell("models", "create", "plain", status=1)
    assert said.startswith(
        f"ERROR: (trainshed.models.create) Resource in projects [{PROJECT}] is the subject of a conflict: "
        f"Field: model.name Error: A model with the same name already exists."
    )
    assert shell("models", "list", "--filter", "name:plain")[0].splitlines() == ["NAME   DEFAULT_VERSION_NAME", "plain"]
    assert shell("models", "list", "--uri", "--filter", "name:plain")[0].endswith(
        f"/v1/projects/{PROJECT}/models/plain\n"
    )
    described = shell("models", "describe", "plain")[0]
    assert f"name: projects/{PROJECT}/models/plain\nregions:\n- us-east1\n" in described
    _, said = shell("models", "update", "plain", "--description", "two", "--update-labels", "a=1,b=2")
    assert said == "Updating model [plain]...done.\nUpdated ai platform model [plain].\n"
    shell("models", "update", "plain", "--remove-labels", "a")
    changed = json.loads(shell("models", "describe", "plain", "--format", "json")[0])
    assert (changed["description"], changed["labels"]) == ("two", {"b": "2"})
    assert "No updates requested" in shell("models", "update", "plain", status=1)[1]
    assert shell("models", "delete", "plain", "-q") == ("", "Deleting model [plain]...done.\n")
    assert "NOT_FOUND: " in shell("models", "describe", "plain", status=1)[1]


@pytest.mark.timeout(900)
def test_policies_of_a_model(shell: Shell) -> None:
    shell("models", "create", "guarded")
    binding = ("--member", "user:ann", "--role", "roles/ml.viewer")
    out, said = shell("models", "add-iam-policy-binding", "guarded", *binding)
    assert said == "Updated IAM policy for model [guarded].\n"
    assert "bindings:\n- members:\n  - user:ann\n  role: roles/ml.viewer\n" in out
    read = json.loads(shell("models", "get-iam-policy", "guarded", "--format", "json")[0])
    assert read["bindings"] == [{"role": "roles/ml.viewer", "members": ["user:ann"]}]
    read["bindings"][0]["members"].append("user:bob")
    (shell.folder / "policy.json").write_text(json.dumps(read))
    assert "- user:bob\n" in shell("models", "set-iam-policy", "guarded", "policy.json")[0]
    assert "user:ann" not in shell("models", "remove-iam-policy-binding", "guarded", *binding)[0]
    assert "was not found" in shell("models", "remove-iam-policy-binding", "guarded", *binding, status=1)[1]
    (shell.folder / "policy.json").write_text(json.dumps(read))  # read before the last change
    assert "ABORTED" in shell("models", "set-iam-policy", "guarded", "policy.json", status=1)[1]


@pytest.mark.timeout(900)
def test_the_first_version_is_the_default_until_another_is_chosen(shell: Shell, line: str) -> None:
    assert shell("models", "list", "--filter", "name:line")[0] == "NAME  DEFAULT_VERSION_NAME\nline  v1\n"
    listed = shell("versions", "list", "--model", line, "--sort-by", "name")[0]
    width = max(len(f"{BUCKET}/times1"), len("DEPLOYMENT_URI"))
    assert listed.splitlines() == [
        f"NAME  {'DEPLOYMENT_URI':{width}}  STATE",
        f"v1    {BUCKET + '/times1':{width}}  READY",
        f"v2    {BUCKET + '/times2':{width}}  READY",
    ]
    assert (ask(shell, line), ask(shell, line, "--version", "v2")) == (3.0, 6.0)
    chosen = shell("ml-engine", "versions", "set-default", "--model", line, "v2")[0]
    assert "isDefault: true\n" in chosen
    assert "description: twice\n" in chosen
    assert ask(shell, line) == 6.0
    out, said = shell("models", "rollback", line)
    assert (out, said) == (
        "",
        "This will take back the last change of what answers for model [line].\n\n"
        "Do you want to continue (Y/n)?  \nThe default version of model [line] is [v1].\n",
    )
    assert ask(shell, line) == 3.0


@pytest.mark.timeout(900)
def test_what_serves_a_version_is_said_on_stderr(shell: Shell, line: str) -> None:
    described, said = shell("versions", "describe", "v2", "--model", line)
    assert "state: READY\n" in described
    assert "OpenVINO" in said
    assert json.loads(shell("versions", "describe", "v2", "--model", line, "--format", "json")[0])["labels"]


@pytest.mark.timeout(900)
def test_requests_are_split_as_told(shell: Shell, line: str) -> None:
    assert "are not split" in shell("models", "split", line)[1]
    assert shell("models", "split", line, "v1=50", "v2=50")[0] == "VERSION  PERCENT\nv1       50\nv2       50\n"
    url = f"/v1/projects/{PROJECT}/models/{line}:predict"
    answers = [shell.server.call("POST", url, {"instances": [[3.0]]})["predictions"][0] for _ in range(60)]
    assert {round(answer["y"]) for answer in answers} == {3, 6}
    assert "add up to 90" in shell("models", "split", line, "v1=90", status=1)[1]
    assert "are not split" in shell("models", "split", line, "--end")[1]
    assert ask(shell, line) == 3.0


@pytest.mark.timeout(900)
def test_a_version_is_rolled_out_by_stages(shell: Shell, line: str) -> None:
    shell("versions", "set-default", "v1", "--model", line)
    of_line = ("--model", line)
    plan = (*of_line, "--step-time", "0s", "--min-requests", "1", "--format", "json")
    started = json.loads(shell("versions", "rollout", "v2", *plan, "--shadow", "10m", "--async")[0])
    assert (started["state"], len(started["stages"]), started["stages"][0]["seconds"]) == ("RUNNING", 5, 600)
    assert "is being rolled out" in shell("versions", "set-default", "v2", *of_line, status=1)[1]
    stopped = json.loads(shell("versions", "rollout", "v2", *of_line, "--stop", "--format", "json")[0])
    assert (stopped["state"], stopped["measured"]) == ("STOPPED", None)
    assert "has ended: STOPPED" in shell("versions", "rollout", "v2", *of_line, "--promote", status=1)[1]
    assert (
        "must end with x or ms or s" in shell("versions", "rollout", "v2", *plan, "--abort-if", "p99>1%", status=1)[1]
    )
    assert "goes without" in shell("versions", "rollout", "v2", *of_line, "--show", "--steps", "100", status=2)[1]
    assert "was never rolled out" in shell("versions", "rollout", "v1", *of_line, "--show", status=1)[1]

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(shell, "versions", "rollout", "v2", *plan, "--steps", "50,100")
        while not watching.done():
            assert ask(shell, line) in (3, 6)
        out, said = watching.result()
    assert json.loads(out)["state"] == "PROMOTED"
    assert "Started with 50 % of the requests." in said
    assert "[1/2] 50 %: " in said
    assert ask(shell, line) == 6
    listed = shell("versions", "list-rollouts", *of_line)[0].splitlines()
    assert [row.split()[:4] for row in listed[1:]] == [["2", "v2", "v1", "PROMOTED"], ["1", "v2", "v1", "STOPPED"]]

    with ThreadPoolExecutor(1) as pool:  # a limit that every answer passes
        never = ("--steps", "50", "--abort-if", "p50>0.000001ms")
        watching = pool.submit(shell, "versions", "rollout", "v1", *plan, *never, status=1)
        while not watching.done():
            ask(shell, line)
        out, said = watching.result()
    assert json.loads(out)["state"] == "ROLLED_BACK"
    assert "Version [v1] is not the default of model [line]: p50>0.000001ms: its p50 is" in said


@pytest.mark.timeout(900)
def test_a_replay_comes_before_the_change(shell: Shell) -> None:
    shell("models", "create", "replayed")
    deploy(shell, "replayed", "v1")
    _, said = shell(
        *("versions", "update", "v1", "--model", "replayed"),
        *("--bigquery-table-name", f"{BUCKET}/requests", "--sampling-percentage", "1"),
    )
    assert said.endswith("Updated AI Platform version [v1].\n")
    for _ in range(5):
        ask(shell, "replayed")
    deploy(shell, "replayed", "v2")
    deploy(shell, "replayed", "same", "--origin", f"{BUCKET}/times1")
    change = ("versions", "set-default", "--model", "replayed", "--after-replay", "5")
    _, said = shell(*change, "v2", status=1)
    assert "Compared 5 requests: 5 answers changed.\n" in said
    assert re.search(r"^Latency in ms: p50 [\d.]+ -> [\d.]+, p99 [\d.]+ -> [\d.]+$", said, re.MULTILINE)
    assert "Give -q" in said
    assert ask(shell, "replayed") == 3.0
    _, said = shell(*change, "same")
    assert "Compared 5 requests: 0 answers changed.\n" in said
    shell(*change, "v2", "-q")
    assert ask(shell, "replayed") == 6.0


@pytest.mark.timeout(900)
def test_versions_are_changed_and_deleted(shell: Shell) -> None:
    shell("models", "create", "short_lived")
    deploy(shell, "short_lived", "v1")
    deploy(shell, "short_lived", "v2")
    (shell.folder / "changes.yaml").write_text("description: from a file\nautoScaling:\n  minNodes: 0\n")
    update = ("versions", "update", "v2", "--model", "short_lived")
    shell(*update, "--config", "changes.yaml", "--update-labels", "a=b")
    changed = json.loads(shell("versions", "describe", "v2", "--model", "short_lived", "--format", "json")[0])
    assert (changed["description"], changed["labels"]) == ("from a file", {"a": "b"})
    assert changed["autoScaling"] == {"minNodes": 0}
    assert "No updates requested" in shell(*update, status=1)[1]
    refused = shell("versions", "delete", "v1", "--model", "short_lived", status=1)[1]
    assert "FAILED_PRECONDITION" in refused
    assert "set-default" in refused
    delete = ("versions", "delete", "--model", "short_lived")
    assert re.fullmatch(r"Deleting version \[v2\]\.\.\.\.*done\.\n", shell(*delete, "v2", "--quiet")[1])
    assert "FAILED_PRECONDITION" in shell("models", "delete", "short_lived", status=1)[1]
    shell(*delete, "v1")
    shell("-q", "models", "delete", "short_lived")


@pytest.mark.timeout(900)
def test_a_person_at_a_terminal_is_asked_first(shell: Shell) -> None:
    shell("models", "create", "kept")

    def answer(word: bytes) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        command = [str(TRAINSHED), "models", "delete", "kept"]
        with subprocess.Popen(command, env=shell.env, stdin=theirs, stderr=subprocess.PIPE) as process:
            os.close(theirs)
            os.write(ours, word)
            said = process.communicate(timeout=240)[1]
        os.close(ours)
        return process.returncode, said.decode()

    status, said = answer(b"n\n")
    assert status == 1
    assert said.startswith("This will delete model [kept]...\n\nDo you want to continue (Y/n)?  ")
    assert said.endswith("Aborted by user.\n")
    assert shell("models", "describe", "kept")[0]
    assert answer(b"\n")[0] == 0
    assert "NOT_FOUND" in shell("models", "describe", "kept", status=1)[1]


@pytest.mark.timeout(900)
def test_local_files_go_to_a_bucket_of_their_own_by_default(shell: Shell) -> None:
    shell("models", "create", "local")
    said = deploy(shell, "local", "v1", "--origin", saved_models() / "times1")
    assert said.startswith(f"Created gs://{PROJECT}-staging for uploads.\n{START}")
    [uri] = shell("versions", "list", "--model", "local", "--format", "value(deploymentUri)")[0].split()
    assert re.fullmatch(rf"gs://{PROJECT}-staging/[0-9a-f]{{64}}/", uri)
    assert ask(shell, "local") == 3.0
    create = ("versions", "create", "v2", "--model", "local", "--origin")
    assert "There is no folder or file [nowhere]" in shell(*create, "nowhere", status=1)[1]
    missing = shell(*create, saved_models() / "times1", "--staging-bucket", "gs://cli-models-nowhere", status=1)[1]
    assert "bucket does not exist. Make it with: trainshed buckets mb gs://cli-models-nowhere" in missing
    assert "`deploymentUri` must be provided" in shell(*create[:-1], status=1)[1]


@pytest.mark.timeout(900)
def test_a_version_that_can_t_be_loaded_says_why(shell: Shell) -> None:
    shell("models", "create", "broken")
    (shell.folder / "bad").mkdir()
    (shell.folder / "bad" / "saved_model.pb").write_text("not a model")
    create = ("versions", "create", "v1", "--model", "broken", "--origin", "bad")
    _, said = shell(*create, "--staging-bucket", BUCKET, "--framework", "tensorflow", status=1)
    assert re.search(r"\.\.\.\.*(\n.*)*failed\.\nERROR: \(trainshed\.versions\.create\) Create Version failed\.", said)
    assert "Failed to load model" in said
    assert shell("versions", "list", "--model", "broken", "--format", "value(state)")[0] == "FAILED\n"


@pytest.mark.timeout(900)
def test_operations_can_be_waited_for(shell: Shell) -> None:
    shell("models", "create", "slow")
    said = deploy(shell, "slow", "v1", "--async")
    found = re.search(r"trainshed operations wait (create_slow_v1-\d+)\n$", said)
    assert found is not None
    waited, _ = shell("operations", "wait", found[1], "--region", "global")
    assert "done: true\n" in waited
    assert ask(shell, "slow") == 3.0
    listed = shell("operations", "list", "--filter", f"name:{found[1]}")[0].splitlines()
    assert [row.split() for row in listed] == [["NAME", "OPERATION_TYPE", "DONE"], [found[1], "CREATE_VERSION", "True"]]
    described = shell("operations", "describe", found[1])[0]
    assert f"modelName: projects/{PROJECT}/models/slow\n" in described


@pytest.mark.timeout(900)
def test_a_class_of_ones_own_answers(shell: Shell) -> None:
    package = shell.folder / "own" / "predictor"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "class Doubler:\n"
        "    def predict(self, instances, **kwargs):\n"
        "        return [{'twice': 2 * each + kwargs.get('more', 0)} for each in instances]\n"
        "    @classmethod\n"
        "    def from_path(cls, model_dir):\n"
        "        return cls()\n"
    )
    (package.parent / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='own', version='1.0', packages=['predictor'])\n"
    )
    shell.bash("cd own && tar czf ../own-1.0.tar.gz --transform 's,^,own-1.0/,' setup.py predictor")
    shell("models", "create", "own")
    code = ("--prediction-class", "predictor.Doubler", "--package-uris", "own-1.0.tar.gz", "--staging-bucket", BUCKET)
    deploy(shell, "own", "v1", *code)
    assert shell("predict", "--model", "own", "--json-instances", "-", stdin="1\n20\n")[0] == "TWICE\n2\n40\n"
    (shell.folder / "body.json").write_text('{"instances": [1], "more": 5}')
    assert shell("predict", "--model", "own", "--json-request", "body.json")[0] == "TWICE\n7\n"
