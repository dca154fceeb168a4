"""Trains classifiers of small digits in each framework of a runtime, saves them in each form, and asks the frameworks.

python formats.py FOLDER tensorflow|torch

Each model is a folder of FOLDER. `own.json` has what its framework answers for the rows of `rows.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import mlflow.pyfunc
import numpy as np
from mlflow.models import infer_signature
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

ASKED = 200  #: rows that are kept out of the training
MLFLOW = "mlflow-skinny"


class Models:
    """The folders that were written, and the answers of their frameworks."""

    def __init__(self, root: Path) -> None:
        digits = load_digits()
        pixels = (digits.data / 16).astype(np.float32)
        self.rows, self.known = pixels[-ASKED:], pixels[:-ASKED]
        self.truth = digits.target[:-ASKED]
        self._root = root
        self._own: dict[str, Any] = {}

    def folder(self, name: str) -> Path:
        path = self._root / name
        path.mkdir()
        return path

    def answered(self, name: str, answer: Any, form: str) -> None:
        """Keep what a framework answers. `form` says what the file is."""
        self._own[name] = {"form": form, "answer": np.asarray(answer).tolist()}

    def save_mlflow(self, name: str, form: str, answer: Any, save: Callable[..., None]) -> None:
        """Save a folder of MLflow, of a model that answers such arrays, and ask MLflow."""
        path = str(self._root / name)
        save(path=path, signature=infer_signature(self.known[:5], answer), pip_requirements=[MLFLOW])
        self.answered(name, mlflow.pyfunc.load_model(path).predict(self.rows), form)

    def close(self) -> None:
        (self._root / "rows.json").write_text(json.dumps(self.rows.tolist()))
        (self._root / "own.json").write_text(json.dumps(self._own))


def with_tensorflow(models: Models) -> None:
    """TensorFlow, scikit-learn, XGBoost, LightGBM and CatBoost: what the runtime 2.21 has."""
    import catboost
    import joblib
    import keras
    import lightgbm
    import mlflow.sklearn
    import mlflow.tensorflow
    import xgboost

    keras.utils.set_random_seed(1)
    layers = [keras.layers.Reshape((8, 8, 1)), keras.layers.Conv2D(16, 3, activation="relu"), keras.layers.Flatten()]
    net = keras.Sequential([keras.Input((64,), name="x"), *layers, keras.layers.Dense(10, "softmax", name="scores")])
    net.compile("adam", "sparse_categorical_crossentropy")
    net.fit(models.known, models.truth, epochs=5, verbose=0)
    own = net.predict(models.rows, verbose=0)
    net.export(models.folder("saved_model"), verbose=False)
    models.answered("saved_model", own, "SavedModel")
    net.save(models.folder("keras") / "model.keras")
    models.answered("keras", own, "`.keras`")

    linear = LogisticRegression(max_iter=500).fit(models.known, models.truth)
    joblib.dump(linear, models.folder("sklearn") / "model.joblib")
    models.answered("sklearn", linear.predict(models.rows), "scikit-learn, `model.joblib`")

    table = xgboost.DMatrix(models.known, models.truth)
    options = {"objective": "multi:softprob", "num_class": 10}
    trees = xgboost.train(options, table, 10)
    trees.save_model(models.folder("xgboost") / "model.bst")
    models.answered("xgboost", trees.predict(xgboost.DMatrix(models.rows)), "XGBoost, `model.bst`")

    options = {"objective": "multiclass", "num_class": 10, "verbose": -1}
    booster = lightgbm.train(options, lightgbm.Dataset(models.known, models.truth), 10)
    booster.save_model(models.folder("lightgbm") / "model.lgb")
    models.answered("lightgbm", booster.predict(models.rows), "LightGBM, `model.lgb`")

    forest = catboost.CatBoostRegressor(iterations=20, verbose=False, allow_writing_files=False)
    forest.fit(models.known, models.truth)
    forest.save_model(models.folder("catboost") / "model.cbm")
    models.answered("catboost", forest.predict(models.rows), "CatBoost, `model.cbm`")

    classes = linear.predict(models.rows)
    pickled = partial(mlflow.sklearn.save_model, linear, serialization_format="cloudpickle")
    models.save_mlflow("mlflow_sklearn", "MLflow, `sklearn`", classes, pickled)
    models.save_mlflow("mlflow_tensorflow", "MLflow, `tensorflow`", own, partial(mlflow.tensorflow.save_model, net))
    program = partial(mlflow.pyfunc.save_model, python_model=Weighted())
    models.save_mlflow("mlflow_pyfunc", "MLflow, `python_function`", own, program)


class Weighted(mlflow.pyfunc.PythonModel):
    """Code of a user's own: a product of matrices in NumPy."""

    def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
        return np.asarray(model_input) @ np.sin(np.arange(64 * 10)).reshape(64, 10)


def with_torch(models: Models) -> None:
    """One network in each form that PyTorch writes."""
    import mlflow.pytorch
    import torch
    from digits_network import Network

    torch.manual_seed(1)
    net, known, truth = Network(), torch.tensor(models.known), torch.tensor(models.truth)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(known), truth).backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        own = net(torch.tensor(models.rows)).numpy()

    example, count = (known[:2],), torch.export.Dim("count", min=1, max=1 << 20)
    program = torch.export.export(net, example, dynamic_shapes={"x": {0: count}})
    exported = torch.onnx.export(program, dynamo=True, input_names=["x"], output_names=["scores"], verbose=False)
    exported.save(models.folder("onnx") / "model.onnx")
    models.answered("onnx", own, "ONNX of PyTorch")
    torch.export.save(program, models.folder("pt2") / "model.pt2")
    models.answered("pt2", own, "PyTorch, `.pt2`")

    tensor = {"dtype": "float32"}
    described = {"inputs": {"x": {**tensor, "shape": [-1, 64]}}, "outputs": {"scores": {**tensor, "shape": [-1, 10]}}}
    script = models.folder("torchscript")
    torch.jit.save(torch.jit.trace(net, example), script / "model.pt")
    (script / "torch_model.json").write_text(json.dumps(described))
    models.answered("torchscript", own, "TorchScript, `model.pt`")
    state = models.folder("state_dict")
    torch.save(net.state_dict(), state / "model.pt")
    (state / "torch_model.json").write_text(json.dumps({"module": "digits_network.Network", **described}))
    models.answered("state_dict", own, "`state_dict`, `model.pt`")

    saved = partial(mlflow.pytorch.save_model, net, input_example=models.known[:2], serialization_format="pt2")
    models.save_mlflow("mlflow_pytorch", "MLflow, `pytorch`", own, saved)


def main() -> None:
    folder, group = sys.argv[1:]
    models = Models(Path(folder))
    {"tensorflow": with_tensorflow, "torch": with_torch}[group](models)
    models.close()


if __name__ == "__main__":
    main()
