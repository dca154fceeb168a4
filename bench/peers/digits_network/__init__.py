"""A network of PyTorch over 64 pixels: a package, so that a version with its `state_dict` can have it."""

import torch
from torch import nn


class Network(nn.Module):
    """A convolution and a dense layer, ten probabilities out."""

    def __init__(self) -> None:
        super().__init__()
        convolution = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten()]
        self.layers = nn.Sequential(*convolution, nn.Linear(16 * 6 * 6, 10), nn.Softmax(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layers(x)
        return scores
