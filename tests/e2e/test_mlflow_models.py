"""Folders that MLflow writes, deployed as they are: beside the answers of `mlflow.pyfunc.load_model`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from trainshed.runtimes.uv import find_uv
from trainshed.testing.cache import runtime_python, torch_python
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.deployer import Deployer

ROWS = [[0.9, 0.1, 0.4], [0.1, 0.2, 0.3], [0.4, 0.9, 0.0]]

#: Saves models, and writes what MLflow answers for them.
START = """
import json, sys
from pathlib import Path
import mlflow.pyfunc, numpy as np, pandas
from mlflow.models import infer_signature

root, rows, found = Path(sys.argv[1]), json.loads(sys.argv[2]), {}
frame = pandas.DataFrame(rows, columns=["a", "b", "c"])
array = frame.to_numpy(np.float32)

def own(name, asked, **options):
    answer = mlflow.pyfunc.load_model(str(root / name)).predict(asked, **options)
    found[name] = answer.to_dict("records") if isinstance(answer, pandas.DataFrame) else np.asarray(answer).tolist()
"""
END = '(root / "own.json").write_text(json.dumps(found))\n'

MAKE = """
import mlflow.sklearn
from sklearn.linear_model import LogisticRegression

chooser = LogisticRegression().fit(frame, ["high", "low", "low"])
signature = infer_signature(frame, chooser.predict(frame))
pins = ["mlflow", "scikit-learn==1.0"]
for name in ("skops", "cloudpickle"):
    mlflow.sklearn.save_model(chooser, root / name, signature=signature, serialization_format=name,
                              pip_requirements=[*pins, "skops==0.16.0"])
    own(name, frame)

(root / "own_words.py").write_text("FACTOR = 2.0\\n")
class Sum(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        import own_words
        total = own_words.FACTOR * model_input.sum(axis=1)
        return pandas.DataFrame({"sum": total * params["scale"], "name": ["row"] * len(total)})
sys.path.insert(0, str(root))
mlflow.pyfunc.save_model(root / "code", python_model=Sum(), code_paths=[root / "own_words.py"], pip_requirements=pins,
                         signature=infer_signature(frame, pandas.DataFrame({"sum": [1.0], "name": ["a"]}),
                                                   params={"scale": 1.0}))
own("code", frame, params={"scale": 3.0})
"""

MAKE_TENSORFLOW = """
import keras, mlflow.tensorflow, tensorflow as tf

pins = ["mlflow", "tensorflow==2.0"]
net = keras.Sequential([keras.Input((3,), name="x"), keras.layers.Dense(2, name="scores")])
tensors = infer_signature(array, net.predict(array, verbose=0))
mlflow.tensorflow.save_model(net, root / "keras", signature=tensors, pip_requirements=pins)
own("keras", array)
class Doubled(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    def __call__(self, x):
        return 2 * x
mlflow.tensorflow.save_model(Doubled(), root / "module", signature=infer_signature(array, 2 * array),
                             pip_requirements=pins)
own("module", array)
"""

MAKE_TORCH = """
import mlflow.pytorch, torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Softmax(-1)).eval()
signature = infer_signature(array, net(torch.tensor(array)).detach().numpy())
for name in ("pickle", "pt2"):
    mlflow.pytorch.save_model(net, root / name, signature=signature, input_example=array, serialization_format=name,
                              pip_requirements=["mlflow", "torch==1.0"])
    own(name, array)
"""


Save = Callable[[Path, str], tuple[Path, dict[str, Any]]]


@pytest.fixture(scope="module")
def save(tmp_path_factory: pytest.TempPathFactory) -> Save:
    """Save models in a runtime that has MLflow beside it. Returns their folder and MLflow's own answers."""
    site = tmp_path_factory.mktemp("mlflow") / "site"
    installed = ["mlflow-skinny==3.17.2", "skops==0.16.0"]

    def run(python: Path, script: str) -> tuple[Path, dict[str, Any]]:
        if not site.exists():
            command = [str(find_uv()), "pip", "install", "--quiet", "--python", str(python), "--target", str(site)]
            subprocess.run([*command, "--no-deps", "skops==0.16.0", "prettytable", "wcwidth"], check=True, timeout=300)
            subprocess.run([*command, installed[0]], check=True, timeout=300)
        folder = tmp_path_factory.mktemp("saved")
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(site)}
        done = subprocess.run(
            [python, "-W", "ignore", "-c", f"{START}{script}{END}", folder, json.dumps(ROWS)],
            env={**os.environ, **quiet},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return folder, json.loads((folder / "own.json").read_text())

    return run


def _deployed(deployer: Deployer, folder: Path, names: Mapping[str, str], **body: Any) -> dict[str, dict[str, Any]]:
    """Deploy folders at the same time. Returns the details of each, which has the loader in `names`."""
    started = {name: deployer.create(name, deployer.upload_folder(folder / name, name), **body) for name in names}
    for operation in started.values():
        finished = deployer.finish(operation)
        assert "response" in finished, finished
    details = {name: deployer.details(name) for name in names}
    assert {name: each["loader"] for name, each in details.items()} == names
    return details


@pytest.mark.long("MLflow is imported by who saves the models, and by two hosts")
@pytest.mark.timeout(600)
def test_folders_of_mlflow_answer_as_mlflow(framework_server: RunningServer, save: Save, tmp_path: Path) -> None:
    folder, own = save(runtime_python("2.21"), MAKE)
    deployer = Deployer(framework_server, "e2e-mlflow", tmp_path)
    details = _deployed(deployer, folder, {"skops": "mlflow", "cloudpickle": "sklearn", "code": "mlflow"})
    assert details["code"]["detail"].startswith("MLflow 3.17.2 (mlflow.pyfunc.model)")

    assert deployer.predict("skops", *ROWS) == own["skops"] == own["cloudpickle"]
    assert deployer.predict("cloudpickle", *({"c": c, "b": b, "a": a} for a, b, c in ROWS)) == own["cloudpickle"]
    url = f"/mlflow/projects/{deployer.project}/models/m/versions/code/invocations"
    frame = {"dataframe_split": {"columns": ["c", "a", "b"], "data": [[c, a, b] for a, b, c in ROWS]}}
    answer = deployer.server.call("POST", url, {**frame, "params": {"scale": 3.0}})
    assert answer == {"predictions": own["code"]}
    for bad in ({"a": 1.0}, [1.0, 2.0], ["x", 1.0, 2.0]):
        for name in ("skops", "code"):
            assert deployer.ask(name, bad)[0] == 400


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_folders_of_tensorflow(framework_server: RunningServer, save: Save, tmp_path: Path) -> None:
    folder, own = save(runtime_python("2.21"), MAKE_TENSORFLOW)
    deployer = Deployer(framework_server, "e2e-mlflow-tensorflow", tmp_path)
    details = _deployed(deployer, folder, {"keras": "keras", "module": "mlflow"})
    assert details["module"]["signatures"]["serving_default"]["inputs"] == {
        "inputs": {"dtype": "float32", "shape": [-1, 3]}
    }
    for name, output in {"keras": "scores", "module": "output"}.items():
        assert _values(deployer.predict(name, *ROWS), output) == [pytest.approx(row, rel=1e-5) for row in own[name]]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_folders_of_pytorch(framework_server: RunningServer, save: Save, tmp_path: Path) -> None:
    folder, own = save(torch_python(), MAKE_TORCH)
    deployer = Deployer(framework_server, "e2e-mlflow-torch", tmp_path)
    _deployed(deployer, folder, {"pickle": "mlflow", "pt2": "pytorch"}, runtimeVersion="torch")
    for name in ("pickle", "pt2"):
        assert _values(deployer.predict(name, *ROWS), "output") == [pytest.approx(row, rel=1e-5) for row in own[name]]
    refused = deployer.refused(deployer.create("elsewhere", f"gs://{deployer.bucket}/pickle", runtimeVersion="2.21"))
    assert "which runtime 2.21 does not have. Create the version with --runtime-version torch." in refused


def _values(predictions: list[Any], name: str) -> list[Any]:
    return [prediction[name] for prediction in predictions]
