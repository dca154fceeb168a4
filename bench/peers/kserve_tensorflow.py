"""KServe's Python model server with a model class of one's own, as its documentation has it."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf
from kserve import Model, ModelServer


class Mnist(Model):
    def __init__(self, folder: str) -> None:
        super().__init__("mnist")
        self._serve = tf.saved_model.load(folder).signatures["serving_default"]
        self.ready = True

    def predict(self, payload: dict[str, Any], headers: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
        out = self._serve(inputs=tf.constant(payload["instances"], tf.float32))
        pairs = zip(out["classes"].numpy().tolist(), out["probabilities"].numpy().tolist(), strict=True)
        return {"predictions": [{"classes": each, "probabilities": all_ten} for each, all_ten in pairs]}


if __name__ == "__main__":
    ModelServer(http_port=int(sys.argv[2]), enable_grpc=False, workers=1, access_log_format=None).start(
        [Mnist(sys.argv[1])]
    )
