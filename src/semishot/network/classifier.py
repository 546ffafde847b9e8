"""Encoders that classify the training classes, before episodes or instead of them (Appendix C, "CNN pre").

Letters: R runs, B images of a batch, N classes, D embedding dimensions.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from semishot.network.encoder import ConvEncoder
from semishot.prototypes import truncated_normal_, unit_length

__all__ = ["CosineHead", "LinearClassifier", "TurnedClassifier"]

QUARTERS = 4
"""How far an image may be turned: by 0 to 3 of them."""


class LinearClassifier(nn.Module):
    """R encoders, each with a linear layer (D, N) over the training classes, drawn from its seed."""

    def __init__(
        self, encoder: ConvEncoder, size: tuple[int, int], seeds: Sequence[int], white: int
    ) -> None:
        """`size` is (D, N), and `white` the pixel value that the encoders see as 1."""
        super().__init__()
        self.encoder, self.white = encoder, white
        self.weight = nn.Parameter(torch.empty(len(seeds), *size))
        self.bias = nn.Parameter(torch.zeros(len(seeds), 1, size[1]))
        for weight, seed in zip(self.weight, seeds, strict=True):
            truncated_normal_(weight, 0.01, torch.Generator().manual_seed(seed))

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """uint8 (R, B, C, H, W), (R, B) -> (R,), each run's mean cross-entropy."""
        runs, batch = labels.shape
        pixels = images.to(self.encoder.weights[0].dtype) / self.white
        features = self.encoder.plain_forward(pixels).reshape(batch, runs, -1).transpose(0, 1)
        return cross_entropies(features @ self.weight + self.bias, labels).mean(1)


class TurnedClassifier(nn.Module):
    """R encoders, each with a cosine classifier of the classes, and one of how far images are turned.

    The images of an update come upright first, then turned by one quarter, two and three, or upright alone.
    The loss is the mean over the upright ones, plus `turned` times the mean over the others, plus `rotation`
    times the mean loss of the second classifier over all.
    """

    def __init__(
        self,
        encoder: ConvEncoder,
        classes: "CosineHead",
        quarters: "CosineHead | None",
        turned: float,
        rotation: float,
    ) -> None:
        super().__init__()
        self.encoder, self.classes, self.quarters = encoder, classes, quarters
        self.turned, self.rotation = turned, rotation

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """uint8 (R, B, C, H, W), (R, B) -> (R,)."""
        x = unit_length(self.encoder(images))  # (R, B, D)
        losses = cross_entropies(self.classes(x), labels)  # (R, B)
        if not self.turned and not self.rotation:
            return losses.mean(1)
        upright = labels.shape[1] // QUARTERS
        loss = losses[:, :upright].mean(1) + self.turned * losses[:, upright:].mean(1)
        if self.quarters is None:
            return loss
        turn = torch.arange(QUARTERS, device=labels.device).repeat_interleave(upright)
        of_turns = cross_entropies(self.quarters(x), turn.expand_as(labels))
        return loss + self.rotation * of_turns.mean(1)


def cross_entropies(scores: Tensor, labels: Tensor) -> Tensor:
    """(R, B, N), (R, B) -> (R, B)."""
    losses = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none")
    return losses.view(labels.shape)


class CosineHead(nn.Module):
    """(R, B, D) of unit length -> (R, B, N): cosines with a vector of each class, times a learned scale."""

    def __init__(self, features: int, classes: int, seeds: Sequence[int], scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(len(seeds), classes, features))
        self.log_scale = nn.Parameter(torch.full((len(seeds),), math.log(scale)))
        for weight, seed in zip(self.weight.data, seeds, strict=True):
            weight.normal_(std=0.02, generator=torch.Generator().manual_seed(seed))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.log_scale.exp().view(-1, 1, 1)
        return scale * (x @ unit_length(self.weight).mT)
