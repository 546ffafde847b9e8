"""Masked Soft k-Means (section 3.1.3, Eqs. 7-9): far examples are masked, per class, by a learned rule."""

import torch
from torch import Tensor, nn

from semishot.errors import InputError
from semishot.prototypes import squared_distances, truncated_normal_

HIDDEN = 20
STATISTICS = 5
LINK_LIMIT = 30.0
"""The largest exponent of a threshold or slope: beyond it, exp might overflow."""


class Refiner(nn.Module):
    """Far examples are masked, by a threshold and a slope that a small learned network gives (Eqs. 7-9).

    The network, 5 -> 20 tanh -> 2, sees statistics of the distances to a class. `mask_power=2` applies
    the mask twice, as the authors' code does.
    """

    def __init__(
        self, runs: int | None = None, mask_power: int = 1, init_std: float = 0.01
    ) -> None:
        super().__init__()
        if mask_power not in (1, 2):
            raise InputError(f"mask_power must be 1 (the paper) or 2 (its code), not {mask_power}")
        self.mask_power, self.init_std = mask_power, init_std
        lead = () if runs is None else (runs,)
        self.hidden_weight = nn.Parameter(torch.empty(*lead, STATISTICS, HIDDEN))
        self.hidden_bias = nn.Parameter(torch.zeros(*lead, 1, HIDDEN))
        self.output_weight = nn.Parameter(torch.empty(*lead, HIDDEN, 2))
        self.output_bias = nn.Parameter(torch.zeros(*lead, 1, 2))
        generator = torch.Generator().manual_seed(0)
        for run in range(runs or 1):
            self.reset_run(run, generator)

    @torch.no_grad()
    def reset_run(self, run: int, generator: torch.Generator) -> None:
        """Draw the weights of one run: near 0, so that beta and gamma begin near exp(0) = 1."""
        fleet = self.hidden_weight.ndim == 3
        for weight in (self.hidden_weight, self.output_weight):
            truncated_normal_(weight[run] if fleet else weight, self.init_std, generator)
        for bias in (self.hidden_bias, self.output_bias):
            (bias[run] if fleet else bias).zero_()

    def forward(self, unlabeled: Tensor, prototypes: Tensor) -> Tensor:
        d = squared_distances(unlabeled, prototypes)  # (..., U, N)
        assignments = (-d).softmax(-1)  # (..., U, N)  Eq. 4
        return assignments * self.mask_of(d) ** self.mask_power  # (..., U, N)  Eq. 9

    def mask_of(self, d: Tensor) -> Tensor:
        """m of Eq. 9 from the squared distances: (..., U, N) -> (..., U, N)."""
        if not d.shape[-2]:
            return d  # nothing to mask, and no statistics
        d = normalized(d)  # (..., U, N)  Eq. 7
        threshold, slope = self.threshold_and_slope(statistics(d))  # (..., 1, N)  Eq. 8
        return torch.sigmoid(-slope * (d - threshold))  # Eq. 9

    def threshold_and_slope(self, stats: Tensor) -> tuple[Tensor, Tensor]:
        """Eq. 8: (..., N, 5) -> beta and gamma, each (..., 1, N)."""
        lead = self.hidden_weight.shape[:-2]
        between = (1,) * (stats.ndim - 2 - len(lead))  # axes between the run and the class
        w1, b1, w2, b2 = (
            p.reshape(lead + between + p.shape[-2:])
            for p in (self.hidden_weight, self.hidden_bias, self.output_weight, self.output_bias)
        )
        out = torch.tanh(stats @ w1 + b1) @ w2 + b2  # (..., N, 2)
        beta, gamma = out.clamp(-LINK_LIMIT, LINK_LIMIT).exp().unsqueeze(-3).unbind(-1)
        return beta, gamma


def normalized(d: Tensor) -> Tensor:
    """Eq. 7: each class's distances over their mean; all zero where all distances are zero."""
    mean = d.mean(-2, keepdim=True)  # (..., 1, N)
    return d / torch.where(mean > 0, mean, 1)


def statistics(d: Tensor) -> Tensor:
    """Min, max, variance, skewness, excess kurtosis over the unlabeled axis: (..., U, N) -> (..., N, 5)."""
    d = d.detach()  # the paper stops gradients here: skew and kurtosis are unstable (footnote 2)
    centered = d - d.mean(-2, keepdim=True)
    variance = centered.square().mean(-2)  # (..., N), biased
    spread = torch.where(variance > 0, variance, 1).sqrt()  # one example: skew 0, kurtosis -3
    standard = centered / spread.unsqueeze(-2)  # (..., U, N)
    skew = standard.pow(3).mean(-2)
    kurtosis = standard.pow(4).mean(-2) - 3
    return torch.stack([d.amin(-2), d.amax(-2), variance, skew, kurtosis], -1)
