"""The fitted mask: expectation-maximization in plain loops."""

import math

import pytest
import torch

from semishot import refine
from semishot.prototypes import class_prototypes
from semishot.refine import fitted_mask
from support.tensors import randn


def clusters(shot, members, strangers):
    """Three classes far apart, and a fourth cluster, as far, that is none of them: prototypes and pile."""
    centers = 6 * torch.eye(4, 16, dtype=torch.float64)
    labels = torch.eye(3, dtype=torch.float64).repeat_interleave(shot, 0)
    support = centers[:3].repeat_interleave(shot, 0) + randn(3 * shot, 16)
    pile = torch.cat([centers[:3].repeat(members, 1), centers[3].expand(strangers, 16)])
    return class_prototypes(support, labels), pile + randn(len(pile), 16, seed=1)


def literal_fit(d):
    """Distances (U x N) as lists -> probability of a member for each."""
    z, second = [min(row) for row in d], [sorted(row)[1] for row in d]
    scale = sum(z) / len(z)
    z, second = [x / scale for x in z], [x / scale for x in second]
    middle = sum(z + second) / (2 * len(z))
    member = [float(x <= middle + fitted_mask.SMALLEST) for x in z]
    for _ in range(fitted_mask.ITERATIONS):
        weights = [1 - m for m in member] + [fitted_mask.ANCHOR] * len(z)
        near = sum(m * x for m, x in zip(member, z, strict=True)) / sum(member)
        far = sum(w * x for w, x in zip(weights, z + second, strict=True)) / sum(weights)
        spread = sum(m * (x - near) ** 2 for m, x in zip(member, z, strict=True))
        spread += sum(w * (x - far) ** 2 for w, x in zip(weights, z + second, strict=True))
        v = spread / (sum(member) + sum(weights))
        share = sum(member) / len(z)

        def odds(x, near=near, far=far, v=v, share=share):
            near_density = share * math.exp(-((x - near) ** 2) / (2 * v))
            far_density = (1 - share) * math.exp(-((x - far) ** 2) / (2 * v))
            return near_density / (near_density + far_density)

        member = [odds(x) for x in z]
    return [[odds(x / scale) for x in row] for row in d]


@pytest.mark.parametrize("mask_power", [1, 2])
def test_the_fitted_mask_matches_plain_expectation_maximization(mask_power):
    prototypes, unlabeled = (each / 3 for each in clusters(shot=1, members=5, strangers=9))
    module = refine.build("fitted_mask", mask_power=mask_power)
    d = [[float((u - p).square().sum()) for p in prototypes] for u in unlabeled]
    masks = literal_fit(d)
    for found, row, mask in zip(module(unlabeled, prototypes), d, masks, strict=True):
        total = sum(math.exp(-x) for x in row)
        expected = [math.exp(-x) / total * m**mask_power for x, m in zip(row, mask, strict=True)]
        assert found.tolist() == pytest.approx(expected, abs=1e-9)
