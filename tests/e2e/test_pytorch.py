"""PyTorch's own files: what their loader makes of them beside the modules that wrote them, and a version of one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.cache import torch_python
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.deployer import Deployer

ROOT = Path(__file__).resolve().parents[2]
ROWS = [[0.5, -1.0, 2.0], [3.0, 0.25, -4.0]]

#: Writes models and loads them again, in one process: the import of PyTorch takes seconds.
LOADER = """
import json, sys, types
from pathlib import Path
import torch
from trainshed.serving.codec.predictors import predict, predictor
from trainshed.serving.errors import ServingError
from trainshed.serving.loaders import load
from trainshed.serving.spec import ServingSpec

root, rows = Path(sys.argv[1]), json.loads(sys.argv[2])

class Scorer(torch.nn.Module):
    def __init__(self, labels=2):
        super().__init__()
        self.layer = torch.nn.Linear(3, labels)
    def forward(self, x):
        scores = self.layer(x)
        return scores.argmax(1), scores

class Named(Scorer):
    def forward(self, x):
        classes, scores = super().forward(x)
        return {"scores": scores, "classes": classes}

class Sum(torch.nn.Module):
    def forward(self, b, a):
        return a - 2 * b

sys.modules["user_code"] = types.ModuleType("user_code")
sys.modules["user_code"].Scorer, sys.modules["user_code"].NoModule = Scorer, dict
torch.manual_seed(1)
named, scorer, x = Named().eval(), Scorer().eval(), torch.tensor(rows)
scorer.load_state_dict(named.state_dict())
n = torch.export.Dim("n")
scores = {"dtype": "float32", "shape": [-1, 2]}
signature = {"inputs": {"x": {"dtype": "float32", "shape": [-1, 3]}},
             "outputs": {"classes": {"dtype": "int64", "shape": [-1]}, "scores": scores}}

def folder(name, description=None):
    (root / name).mkdir()
    if description is not None:
        (root / name / "torch_model.json").write_text(json.dumps(description))
    return root / name

def program(name, module, args, shapes):
    torch.export.save(torch.export.export(module, args, dynamic_shapes=shapes), folder(name) / "model.pt2")

program("program", named, (x,), {"x": {0: n}})
program("tuple", scorer, (x,), {"x": {0: n}})
program("two", Sum(), (x, x), {"b": {0: n}, "a": {0: n}})
program("fixed", named, (x,), None)
torch.jit.save(torch.jit.trace(scorer, (x,)), folder("script", signature) / "model.pt")
state = {"module": "user_code.Scorer", "arguments": {"labels": 2}, **signature}
for name, description in {"state": state, "alone": None, "kind": {**state, "module": "user_code.NoModule"},
                          "absent": {**state, "module": "nowhere.Scorer"}, "odd": {"x": 1},
                          "width": {**state, "arguments": {"labels": 3}}}.items():
    torch.save(named.state_dict(), folder(name, description) / "model.pt")
torch.jit.save(torch.jit.trace(scorer, (x,)), folder("bare") / "model.pt")
(folder("damaged") / "a.pt2").write_bytes(b"PK no zip")

def answers(name, instances):
    try:
        model = load(ServingSpec(model_dir=root / name, threads=1))
    except ServingError as exc:
        return str(exc)
    status, answer = predict(predictor(model), json.dumps({"instances": instances}).encode())
    return [status, json.loads(answer), model.signatures["serving_default"].as_json()]

found = {path.name: answers(path.name, rows) for path in sorted(root.iterdir())}
found["two"] = answers("two", [{"a": row, "b": row} for row in rows])
found["one of two"], found["narrow"] = answers("fixed", rows[:1]), answers("program", [[1.0]])
classes, expected = scorer(x)
found["expected"] = [{"classes": int(c), "scores": s} for c, s in zip(classes, expected.tolist())]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pytorch")


@pytest.fixture(scope="module")
def found(models: Path) -> dict[str, Any]:
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command: list[str | Path] = [torch_python(), "-W", "ignore", "-c", LOADER, models, json.dumps(ROWS)]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("name", ["program", "fixed", "script", "state"])
def test_answers_are_those_of_the_module(found: dict[str, Any], name: str) -> None:
    status, answer, signature = found[name]
    assert (status, answer) == (200, {"predictions": found["expected"]})
    first = 2 if name == "fixed" else -1
    assert signature["inputs"] == {"x": {"dtype": "float32", "shape": [first, 3]}}
    assert signature["outputs"]["classes"] == {"dtype": "int64", "shape": [first]}


def test_outputs_without_names_are_counted(found: dict[str, Any]) -> None:
    rows = [{"output_0": row["classes"], "output_1": row["scores"]} for row in found["expected"]]
    assert found["tuple"][:2] == [200, {"predictions": rows}]


def test_several_inputs_have_names(found: dict[str, Any]) -> None:
    assert found["two"][:2] == [200, {"predictions": [{"output": [-value for value in row]} for row in ROWS]}]


@pytest.mark.parametrize("name", ["one of two", "narrow"])
def test_what_does_not_fit_the_program_is_the_callers_fault(found: dict[str, Any], name: str) -> None:
    assert found[name][0] == 400


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alone", 'holds no TorchScript. A state_dict needs the class of its module, as "module" in torch_model.json'),
        ("kind", "user_code.NoModule of torch_model.json is no torch.nn.Module"),
        ("absent", "nowhere.Scorer of torch_model.json can't be made: ModuleNotFoundError"),
        ("width", "model.pt is no state_dict of user_code.Scorer: RuntimeError"),
        ("odd", "must be an object with fields among arguments, inputs, module, outputs"),
        ("bare", "model.pt does not say what its inputs and outputs are: torch_model.json must"),
        ("damaged", "Could not load the model: a.pt2."),
    ],
)
def test_what_does_not_load_says_why(found: dict[str, Any], name: str, message: str) -> None:
    assert message in found[name]


@pytest.mark.timeout(600)
def test_a_version_of_pytorch_is_served_by_its_runtime(
    framework_server: RunningServer, found: dict[str, Any], models: Path, tmp_path: Path
) -> None:
    deployer = Deployer(framework_server, "e2e-pytorch", tmp_path)
    details = deployer.deploy("program", deployer.upload_folder(models / "program", "program"), framework="PYTORCH")
    assert (details["loader"], details["version"]["framework"]) == ("pytorch", "PYTORCH")
    assert details["detail"].startswith("PyTorch 2.13.0")
    assert deployer.predict("program", *ROWS) == found["expected"]
