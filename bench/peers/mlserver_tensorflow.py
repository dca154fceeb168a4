"""Seldon's MLServer: a custom runtime with its adaptive batching. `python THIS MODEL PORT` sets it up and starts it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Mnist(MLModel):
    async def load(self) -> bool:
        self._serve = tf.saved_model.load(self.settings.parameters.uri).signatures["serving_default"]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        rows = NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32)
        out = self._serve(inputs=tf.constant(rows))
        return InferenceResponse(
            model_name=self.name,
            outputs=[NumpyCodec.encode_output(name, out[name].numpy()) for name in ("classes", "probabilities")],
        )


def configure(folder: Path, model: str, port: int) -> None:
    """The files that `mlserver start` reads. No worker processes: for one model they only add a hop."""
    settings = {"http_port": port, "host": "127.0.0.1", "grpc_port": port + 1, "metrics_port": port + 2}
    settings |= {"parallel_workers": 0, "debug": False}
    (folder / "settings.json").write_text(json.dumps(settings))
    one = {"name": "mnist", "implementation": "mlserver_tensorflow.Mnist", "parameters": {"uri": model}}
    one |= {"max_batch_size": 32, "max_batch_time": 0.001}
    (folder / "model-settings.json").write_text(json.dumps(one))


if __name__ == "__main__":
    here = Path.cwd()
    configure(here, sys.argv[1], int(sys.argv[2]))
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    mlserver = str(Path(sys.executable).with_name("mlserver"))
    os.execv(mlserver, [mlserver, "start", str(here)])
