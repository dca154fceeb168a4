"""A small network that classifies digits, trained on MNIST in seconds and served as a custom prediction routine."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.submitter import wheel, wheel_name

MNIST = Path(__file__).resolve().parents[4] / "samples" / "data" / "mnist"
PIXELS = 784
_HIDDEN, _IMAGES, _BATCH, _STEPS = 64, 20_000, 100, 600

#: takes images in any shape, with or without a name
_ROUTINE = """
import os
import numpy as np

class Digits:
    def __init__(self, weights):
        self.weights = weights

    @classmethod
    def from_path(cls, model_dir):
        with np.load(os.path.join(model_dir, "weights.npz")) as file:
            return cls([file[name] for name in ("w1", "b1", "w2", "b2")])

    def predict(self, instances, **kwargs):
        w1, b1, w2, b2 = self.weights
        plain = [next(iter(each.values())) if isinstance(each, dict) else each for each in instances]
        rows = np.array([np.asarray(each, np.float32).reshape(784) for each in plain])
        scores = np.maximum(rows @ w1 + b1, 0) @ w2 + b2
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares = raised / raised.sum(axis=1, keepdims=True)
        return [{"classes": int(row.argmax()), "probabilities": row.tolist()} for row in shares]
"""


def images(name: str, count: int) -> NDArray[np.float32]:
    """Return the first images of a set, `train` or `t10k`, as rows of values from 0 to 1."""
    with gzip.open(MNIST / f"{name}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(16 + count * PIXELS)[16:], np.uint8)
    return (pixels.reshape(count, PIXELS) / 255).astype(np.float32)


def labels(name: str, count: int) -> NDArray[np.uint8]:
    with gzip.open(MNIST / f"{name}-labels-idx1-ubyte.gz") as file:
        return np.frombuffer(file.read(8 + count)[8:], np.uint8)


def write_part(folder: Path, *, train: int, test: int) -> None:
    """Write MNIST's four files with the first images of each set alone, for trainings of a few steps."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("t10k", test)):
        for kind, header, width in (("images-idx3", 16, PIXELS), ("labels-idx1", 8, 1)):
            with gzip.open(MNIST / f"{name}-{kind}-ubyte.gz") as file:
                magic, _, *sizes = struct.unpack(f">{header // 4}I", file.read(header))
                content = struct.pack(f">{header // 4}I", magic, count, *sizes) + file.read(count * width)
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(content, 1))


def train() -> dict[str, NDArray[np.float32]]:
    """Return the weights of two layers, always the same. They classify about 95 % of the test set."""
    rng = np.random.default_rng(0)
    rows, truth = images("train", _IMAGES), labels("train", _IMAGES)
    weights = {
        "w1": rng.normal(0, (2 / PIXELS) ** 0.5, (PIXELS, _HIDDEN)).astype(np.float32),
        "b1": np.zeros(_HIDDEN, np.float32),
        "w2": rng.normal(0, (1 / _HIDDEN) ** 0.5, (_HIDDEN, 10)).astype(np.float32),
        "b2": np.zeros(10, np.float32),
    }
    momentum = {name: np.zeros_like(values) for name, values in weights.items()}
    for step in range(_STEPS):
        batch = rng.integers(0, len(rows), _BATCH)
        for name, gradient in _gradients(weights, rows[batch], truth[batch]).items():
            momentum[name] = 0.9 * momentum[name] + gradient
            weights[name] -= np.float32(0.1 * (1 - step / _STEPS)) * momentum[name]
    return weights


def _gradients(
    weights: dict[str, NDArray[np.float32]], rows: NDArray[np.float32], truth: NDArray[np.uint8]
) -> dict[str, NDArray[np.float32]]:
    hidden = np.maximum(rows @ weights["w1"] + weights["b1"], 0)
    scores = hidden @ weights["w2"] + weights["b2"]
    probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    probabilities[np.arange(len(rows)), truth] -= 1
    probabilities /= len(rows)
    back = (probabilities @ weights["w2"].T) * (hidden > 0)
    return {
        "w1": rows.T @ back,
        "b1": back.sum(axis=0),
        "w2": hidden.T @ probabilities,
        "b2": probabilities.sum(axis=0),
    }


def deploy(deployer: Deployer, scratch: Path, version: str, sample: Any) -> None:
    """Deploy the network as a version that takes images in the form of `sample`, an instance."""
    folder = scratch / version / f"digits_{version}"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "routine.py").write_text(_ROUTINE)
    weights = scratch / "weights.npz"
    if not weights.exists():
        np.savez(weights, **train())  # type: ignore[arg-type]
    package = deployer.upload(f"{version}/{wheel_name(folder.name)}", wheel(folder))
    deployer.upload(f"{version}/model/weights.npz", weights.read_bytes())
    request = json.dumps({"instances": [sample]}).encode()
    deployer.upload(f"{version}/model/assets.extra/sample_request.json", request)
    uri = f"gs://{deployer.bucket}/{version}/model"
    deployer.deploy(version, uri, packageUris=[package], predictionClass=f"digits_{version}.routine.Digits")
