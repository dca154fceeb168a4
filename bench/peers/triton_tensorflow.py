"""NVIDIA's Triton through PyTriton: TensorFlow behind the real inference server and its dynamic batcher."""

from __future__ import annotations

import sys

import numpy as np
import tensorflow as tf
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]


@batch
def infer(inputs: np.ndarray) -> list[np.ndarray]:
    out = serve(inputs=tf.constant(inputs))
    return [out["classes"].numpy().reshape(-1, 1), out["probabilities"].numpy()]


if __name__ == "__main__":
    listen = TritonConfig(
        http_address="127.0.0.1", http_port=int(sys.argv[2]), allow_grpc=False, allow_metrics=False, log_verbose=0
    )
    with Triton(config=listen) as triton:
        triton.bind(
            model_name="mnist",
            infer_func=infer,
            inputs=[Tensor(name="inputs", dtype=np.float32, shape=(784,))],
            outputs=[
                Tensor(name="classes", dtype=np.int64, shape=(1,)),
                Tensor(name="probabilities", dtype=np.float32, shape=(10,)),
            ],
            config=ModelConfig(max_batch_size=32, batcher=DynamicBatcher(max_queue_delay_microseconds=0)),
        )
        triton.serve()
