"""Embeddings on a sphere around the mean of the training images: Eq. 2 becomes a softmax of cosines.

With x the embedding minus the mean, at unit length, h = r x. For two points on the sphere

    -|h - g|^2 = -2 r^2 (1 - cos(h, g)),

so the distances of Eq. 2 are cosines times a scale s = 2 r^2, and a constant. The scale is learned.
Letters: R runs, B images, N classes, D embedding dimensions.
"""

import math

import torch
from torch import Tensor, nn

from semishot.prototypes import unit_length

SPEED = 10
"""The logarithm of the scale is this times its parameter, so that Adam moves it this many times as fast as
it moves weights."""
MOMENTUM = 0.02
"""How far the running mean goes in an update."""


class Sphere(nn.Module):
    """R spheres; in training their centers follow the mean of the embeddings."""

    center: Tensor

    def __init__(self, runs: int, features: int, scale: float = 10.0) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(runs, features))
        self.slow_log_scale = nn.Parameter(torch.full((runs,), math.log(scale) / SPEED))

    @property
    def radius(self) -> Tensor:
        """(R,): r = sqrt(s / 2)."""
        return ((SPEED * self.slow_log_scale).exp() / 2).sqrt()

    def forward(self, embeddings: Tensor) -> Tensor:
        """(R, B, D) -> (R, B, D)."""
        if self.training:
            self.center.lerp_(embeddings.detach().mean(1).to(self.center.dtype), MOMENTUM)
        return self.project(embeddings - self.center.unsqueeze(1))

    def project(self, points: Tensor) -> Tensor:
        """(R, ..., N, D) -> (R, ..., N, D), at the same directions from the center."""
        return self.radius.view(-1, *(1,) * (points.ndim - 1)) * unit_length(points)
