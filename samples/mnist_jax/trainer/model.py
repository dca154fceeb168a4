"""The network: one hidden layer, images as 784 numbers from 0 to 1 in, ten scores out."""

import jax
import jax.numpy as jnp
import numpy as np

from trainer.files import SIDE

DIGITS = 10


def first_weights(width, seed):
    rng = np.random.RandomState(seed)
    return {
        "w1": (rng.randn(SIDE * SIDE, width) * (2 / (SIDE * SIDE)) ** 0.5).astype(np.float32),
        "b1": np.zeros(width, np.float32),
        "w2": (rng.randn(width, DIGITS) * (2 / width) ** 0.5).astype(np.float32),
        "b2": np.zeros(DIGITS, np.float32),
    }


def scores_of(weights, images):
    hidden = jax.nn.relu(images @ weights["w1"] + weights["b1"])
    return hidden @ weights["w2"] + weights["b2"]


def loss_of(weights, images, digits):
    likely = jax.nn.log_softmax(scores_of(weights, images))
    return -jnp.take_along_axis(likely, digits[:, None], 1).mean()
