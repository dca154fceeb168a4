"""What one writes in an afternoon: a FastAPI handler that calls TensorFlow, on two uvicorn workers."""

from __future__ import annotations

import os
import sys
from typing import Any

import tensorflow as tf
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()
serve = tf.saved_model.load(os.environ["BENCH_MODEL"]).signatures["serving_default"]


class Request(BaseModel):
    instances: list[list[float]]


@app.post("/predict")
def predict(request: Request) -> dict[str, Any]:
    out = serve(inputs=tf.constant(request.instances, tf.float32))
    pairs = zip(out["classes"].numpy().tolist(), out["probabilities"].numpy().tolist(), strict=True)
    return {"predictions": [{"classes": each, "probabilities": all_ten} for each, all_ten in pairs]}


if __name__ == "__main__":
    uvicorn.run("fastapi_tensorflow:app", port=int(sys.argv[2]), workers=2, log_level="error")
