"""The network and the images it learns from."""

import gzip
import os

import numpy as np
import tensorflow as tf
import tf_keras as keras
from tf_keras import layers

DIGITS = 10
SIDE = 28


def read(folder, part):
    """The images (bytes) and one-hot digits of `train` or `t10k`, from MNIST's own files."""
    arrays = []
    for kind, header in (("images-idx3", 16), ("labels-idx1", 8)):
        path = os.path.join(folder, "%s-%s-ubyte.gz" % (part, kind))
        with tf.io.gfile.GFile(path, "rb") as file:
            arrays.append(np.frombuffer(gzip.decompress(file.read()), np.uint8, offset=header))
    images, labels = arrays
    return images.reshape(-1, SIDE, SIDE, 1), keras.utils.to_categorical(labels, DIGITS)


def create_model(steps):
    """Three convolutions and two dense layers, compiled for a training of `steps` steps.

    Call it within the scope of a strategy. The learning rate falls along a cosine: the last steps, at a low rate, are
    worth more than several epochs at a constant one.
    """
    model = keras.Sequential(
        [
            layers.Conv2D(32, (3, 3), activation="relu", input_shape=(SIDE, SIDE, 1)),
            layers.MaxPooling2D((2, 2)),
            layers.Conv2D(64, (3, 3), activation="relu"),
            layers.MaxPooling2D((2, 2)),
            layers.Conv2D(64, (3, 3), activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(DIGITS, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.03, steps), momentum=0.9),
        loss="categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model
