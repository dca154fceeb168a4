"""The network and the images it learns from."""

import gzip
import os

import numpy as np
import torch
from torch import nn

from trainer.files import read_file

DIGITS = 10
SIDE = 28


def read(folder, part):
    """The images (bytes) and digits of `train` or `t10k`, from MNIST's own files."""
    arrays = []
    for kind, header in (("images-idx3", 16), ("labels-idx1", 8)):
        content = read_file(os.path.join(folder, "%s-%s-ubyte.gz" % (part, kind)))
        arrays.append(np.frombuffer(gzip.decompress(content), np.uint8, offset=header))
    images, labels = arrays
    return torch.from_numpy(images.reshape(-1, SIDE * SIDE).copy()), torch.from_numpy(labels.astype(np.int64))


class Network(nn.Module):
    """Two convolutions and two dense layers: images as 784 numbers from 0 to 1 in, ten scores out."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Unflatten(1, (1, SIDE, SIDE)),
            nn.Conv2d(1, 32, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 5 * 5, 64),
            nn.ReLU(),
            nn.Linear(64, DIGITS),
        )

    def forward(self, inputs):
        return self.layers(inputs)


class Classifier(nn.Module):
    """What is exported: the digit of each image, and how probable each digit is."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, inputs):
        probabilities = torch.softmax(self.network(inputs), 1)
        return {"classes": probabilities.argmax(1), "probabilities": probabilities}
