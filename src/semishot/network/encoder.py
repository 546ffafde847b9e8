"""h(x): four convolution blocks for a fleet of R runs as one grouped network (PROTOCOL 2.1-2.2).

Letters: R runs, B images per run, C channels, H x W pixels, F filters, D embedding dimensions.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from semishot.errors import InputError
from semishot.prototypes import truncated_normal_

BLOCKS = 4
MOMENTUM = 0.1  # the authors' moving-average decay of 0.9
EPSILON = 1e-5

__all__ = ["ConvEncoder", "embedding_features"]


class ConvEncoder(nn.Module):
    """3x3 convolution, batch norm, ReLU, 2x2 max-pool, four times, then flatten.

    Every parameter carries a leading axis R. The R networks run as one: the images of run r lie in
    channel group r, the convolutions have R groups and batch norm R * F channels, so that the
    runs do not affect each other. In training, batch norm takes the statistics of the whole batch
    it is given; in evaluation its moving averages. The convolutions have no bias: batch norm would
    subtract it again.
    """

    def __init__(
        self, channels: int = 1, filters: int = 64, runs: int = 1, init_std: float = 0.01
    ) -> None:
        super().__init__()
        self.channels, self.filters, self.runs, self.init_std = channels, filters, runs, init_std
        self.fused = False
        """Train through the fused bf16 kernels (CUDA). Set by the training loop."""
        self.momentum = MOMENTUM
        """How far the moving averages go in an update."""
        into = [channels] + [filters] * (BLOCKS - 1)
        shape = (runs, filters)
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(*shape, c, 3, 3)) for c in into)
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(shape)) for _ in into)
        self.shifts = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for _ in into)
        for block in range(BLOCKS):
            self.register_buffer(f"mean{block}", torch.zeros(shape))
            self.register_buffer(f"var{block}", torch.ones(shape))
        generator = torch.Generator().manual_seed(0)
        for run in range(runs):
            self.reset_run(run, generator)

    @torch.no_grad()
    def reset_run(self, run: int, generator: torch.Generator) -> None:
        """Draw the convolution weights of one run from a truncated normal; the rest is constant.

        If `init_std` is 0, from a normal whose variance is a third of one over the inputs of a filter.
        """
        for weight in self.weights:
            if self.init_std:
                truncated_normal_(weight[run], self.init_std, generator)
            else:
                weight[run].normal_(std=(3 * weight[run, 0].numel()) ** -0.5, generator=generator)

    def like(self, runs: int) -> "ConvEncoder":
        """The same network with other weights, for another number of runs."""
        return ConvEncoder(self.channels, self.filters, runs, self.init_std)

    def features(self, size: Sequence[int]) -> int:
        """D, for images of H x W pixels."""
        return embedding_features(self.filters, size)

    def forward(self, images: Tensor) -> Tensor:
        """uint8 (R, B, C, H, W) -> (R, B, D). Pixels are scaled to [0, 1] and nothing else."""
        return self.flattened(self.feature_maps(images))

    def flattened(self, maps: Tensor) -> Tensor:
        """(B, R * F, H / 16, W / 16) -> (R, B, D)."""
        return maps.reshape(maps.shape[0], self.runs, -1).transpose(0, 1)

    def feature_maps(self, images: Tensor) -> Tensor:
        """uint8 (R, B, C, H, W) -> (B, R * F, H / 16, W / 16), before they are flattened."""
        runs, _, channels, height, width = images.shape
        if (runs, channels) != (self.runs, self.channels) or min(height, width) < 2**BLOCKS:
            raise InputError(
                f"this encoder takes images ({self.runs}, B, {self.channels}, H, W) of at least "
                f"{2**BLOCKS} pixels a side, not {tuple(images.shape)}"
            )
        if self.fused and self.training:
            return self.fused_forward(images)
        return self.plain_forward(images.to(self.weights[0].dtype) / 255)

    def plain_forward(self, pixels: Tensor) -> Tensor:
        """(R, B, C, H, W) -> (B, R * F, H / 16, W / 16): the reference, on any device."""
        x = pixels.transpose(0, 1).flatten(1, 2)  # (B, R * C, H, W)
        x = x.contiguous(memory_format=torch.channels_last)  # three times faster on a CPU
        if not self.training:
            for block in range(BLOCKS):
                x = self.folded_block(block, x)
            return x
        weight, shift = self.fold(0, *self.first_statistics(*patch_moments(pixels)))
        x = F.conv2d(x, weight.flatten(0, 1), shift.flatten(), padding=1, groups=self.runs)
        x = F.relu(F.max_pool2d(x.contiguous(memory_format=torch.channels_last), 2))
        for block in range(1, BLOCKS):
            x = self.block(block, x)  # (B, R * F, H / 2, W / 2)
        return x

    def fused_forward(self, images: Tensor) -> Tensor:
        """The same for training on CUDA: activations in bf16; statistics, parameters and the embedding
        in float32."""
        from semishot.network import fused  # needs Triton

        rest = EPSILON, self.momentum
        x = fused.first_block(images, *self.parameters_of(0), *self.moving_averages(0), *rest)
        for block in range(1, BLOCKS):
            dtype = torch.float32 if block == BLOCKS - 1 else torch.bfloat16
            x = fused.block(
                x, *self.parameters_of(block), *self.moving_averages(block), *rest, dtype
            )
        return x

    def parameters_of(self, block: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.weights[block], self.scales[block], self.shifts[block]

    def moving_averages(self, block: int) -> tuple[Tensor, Tensor]:
        return self.get_buffer(f"mean{block}"), self.get_buffer(f"var{block}")

    def block(self, block: int, x: Tensor) -> Tensor:
        """(B, R * F, H, W) -> (B, R * F, H / 2, W / 2), normalized by the batch."""
        x = F.conv2d(x, self.weights[block].flatten(0, 1), padding=1, groups=self.runs)
        mean, var = self.moving_averages(block)
        scale, shift = self.scales[block].flatten(), self.shifts[block].flatten()
        momentum = self.momentum
        x = F.batch_norm(x, mean.view(-1), var.view(-1), scale, shift, True, momentum, EPSILON)
        return F.max_pool2d(F.relu(x), 2)

    def folded_block(self, block: int, x: Tensor) -> Tensor:
        """(B, R * C, H, W) -> (B, R * F, H / 2, W / 2), normalized by the moving averages."""
        weight, shift = self.fold(block, *self.moving_averages(block))
        x = F.conv2d(x, weight.flatten(0, 1), shift.flatten(), padding=1, groups=self.runs)
        return F.relu(F.max_pool2d(x, 2))

    def fold(self, block: int, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Batch norm with known statistics is affine, so it can be folded into the convolution:

        scale (w x - mean) / sqrt(var + eps) + shift = (w gain) x + (shift - mean gain).
        """
        gain = self.scales[block] * torch.rsqrt(var + EPSILON)  # (R, F)
        return self.weights[block] * gain[..., None, None, None], self.shifts[block] - mean * gain

    def first_statistics(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (R, F) of the first convolution's output, without computing it.

        The output is w p for the 3x3 patch p around each pixel, so its mean is w E[p] and its
        variance w Cov[p] w: sums over 9 C numbers per pixel instead of F, and no pass over the
        largest tensor of the network, forward or backward. Takes the patches' moments.
        """
        w = self.weights[0].flatten(2)  # (R, F, 9 C)
        mean = (w @ mean.unsqueeze(-1)).squeeze(-1)  # (R, F)
        var = (w @ covariance * w).sum(-1).clamp_min(0)  # (R, F)
        with torch.no_grad():
            moving_mean, moving_var = self.moving_averages(0)
            moving_mean.lerp_(mean, self.momentum)
            moving_var.lerp_(var, self.momentum)
        return mean, var


def embedding_features(filters: int, size: Sequence[int]) -> int:
    """D, for images of H x W pixels."""
    height, width = size
    return int(filters * (height // 2**BLOCKS) * (width // 2**BLOCKS))


def patch_moments(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (R, 9 C) and covariance (R, 9 C, 9 C) of the zero-padded 3x3 patches of each run's images."""
    runs, batch, _, height, width = pixels.shape
    padded = F.pad(pixels.flatten(0, 1), (1, 1, 1, 1))
    shifts = [padded[..., i : i + height, j : j + width] for i in range(3) for j in range(3)]
    patches = torch.stack(shifts, 2).flatten(1, 2).flatten(2)  # (R B, 9 C, H W)
    mean = patches.mean(-1).unflatten(0, (runs, batch)).mean(1)
    second = (patches @ patches.mT).unflatten(0, (runs, batch)).mean(1) / patches.shape[-1]
    return mean, second - mean.unsqueeze(-1) * mean.unsqueeze(-2)
