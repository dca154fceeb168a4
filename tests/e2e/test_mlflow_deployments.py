"""The target `trainshed` of `mlflow deployments`, as MLflow itself finds and calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainshed.runtimes.uv import find_uv
from trainshed.testing.processes.servers import RunningServer

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "mlflow-deployments"

#: Calls the client with each method, and writes what came of it.
CALLS = """
import json, sys
from pathlib import Path
import mlflow.pyfunc, numpy as np, pandas
from mlflow.deployments import get_deploy_client, run_local
from mlflow.deployments.interface import plugin_store
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import ErrorCode

target, root = sys.argv[1], Path(sys.argv[2])
client = get_deploy_client(target)

class Sum(mlflow.pyfunc.PythonModel):
    def __init__(self, factor):
        self.factor = factor
    def predict(self, context, model_input, params=None):
        return self.factor * np.asarray(model_input).sum(axis=1)

for factor in (1, 10):
    mlflow.pyfunc.save_model(root / f"sum{factor}", python_model=Sum(factor), pip_requirements=["mlflow"])

def refused(call, *args, **kwargs):
    try:
        return ["answered", str(call(*args, **kwargs))]
    except MlflowException as exc:
        return [exc.error_code, exc.message]

frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
first = str(root / "sum1")
found = {
    "none": refused(client.get_deployment, "sum"),
    "config": refused(client.create_deployment, "sum", first, config={"color": "red"}),
    "nodes": refused(client.create_deployment, "sum", first, config={"min_nodes": "many"}),
    "flavor": refused(client.create_deployment, "sum", first, flavor="sklearn"),
    "endpoint": refused(client.list_deployments, endpoint="e"),
    "empty": client.list_deployments(),
    "local": refused(run_local, target, "sum", first),
    "created": client.create_deployment("sum", first, config={"min_nodes": "0"}),
    "again": refused(client.create_deployment, "sum", first),
    "frame": client.predict("sum", frame),
    "array": client.predict("sum", frame.to_numpy())["predictions"],
    "list": client.predict("sum", [[1, 2]])["predictions"],
    "body": client.predict("sum", {"dataframe_records": [{"a": 1, "b": 2}]})["predictions"],
    "bad": refused(client.predict, "sum", 3),
    "listed": client.list_deployments(),
}
client.update_deployment("sum", str(root / "sum10"))
found |= {
    "updated": client.get_deployment("sum"),
    "after": client.predict("sum", frame).get_predictions("ndarray").tolist(),
    "unchanged": refused(client.update_deployment, "sum", config={"min_nodes": "1"}),
    "unknown": refused(client.update_deployment, "other", first),
}
client.delete_deployment("sum")
client.delete_deployment("sum")
found["deleted"] = refused(client.predict, "sum", frame)
found["help"] = plugin_store["trainshed"].target_help()
print(json.dumps(found))
"""


@pytest.mark.long("MLflow is imported by its client and by two hosts")
@pytest.mark.timeout(600)
def test_each_method_does_what_mlflow_promises(framework_server: RunningServer, tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [str(find_uv()), "pip", "install", "--quiet", "--python", sys.executable, "--target", str(site)]
    subprocess.run([*command, "mlflow-skinny==3.17.2", "pandas"], check=True, timeout=300)
    path = os.pathsep.join([str(site), str(ROOT / "src")])
    env = {**os.environ, **framework_server.env(), "PYTHONPATH": path, "MLFLOW_DISABLE_TELEMETRY": "true"}
    env.pop("TRAINSHED_PROJECT", None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CALLS, f"trainshed:/{PROJECT}", tmp_path],
        env=env,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])

    assert found["empty"] == []
    created = found["created"]
    assert (created["name"], created["version"], created["state"]) == ("sum", "v1", "READY")
    assert found["listed"] == [{"name": "sum"}]
    assert found["frame"] == {"predictions": [4.0, 6.0]}
    assert (found["array"], found["list"], found["body"]) == ([4.0, 6.0], [3.0], [3.0])
    assert (found["updated"]["version"], found["after"]) == ("v2", [40.0, 60.0])
    assert "--config KEY=VALUE" in found["help"]

    codes = {name: found[name][0] for name in ("none", "unknown", "deleted", "again", "config", "nodes", "flavor")}
    absent = dict.fromkeys(("none", "unknown", "deleted"), "RESOURCE_DOES_NOT_EXIST")
    invalid = dict.fromkeys(("config", "nodes", "flavor"), "INVALID_PARAMETER_VALUE")
    assert codes == {**absent, "again": "RESOURCE_ALREADY_EXISTS", **invalid}
    for name in ("endpoint", "local", "bad", "unchanged"):
        assert found[name][0] == "INVALID_PARAMETER_VALUE", found[name]
    assert "has no local mode. Start a server with `trainshed up`" in found["local"][1]
    assert "There is no option 'color'" in found["config"][1]
