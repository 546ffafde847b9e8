"""How far numbers differ beside their errors: z against the paper, paired t between our own splits."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

AGREES = 2.0
"""Cells agree up to this |z|; beyond it one is above the other."""
PAPER_SPLITS = 10


def standard_error(values: Sequence[float]) -> float:
    """Of the mean, with ddof = 1; 0 for a single value, of which nothing is known."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def z_score(gap: float, error: float, theirs: float) -> float:
    """A difference over the standard errors of its two sides."""
    return gap / max(1e-12, math.hypot(error, theirs))


def unbiased(error: float) -> float:
    """The paper's standard error over its splits, whose deviation has ddof = 0, with ddof = 1."""
    return error * math.sqrt(PAPER_SPLITS / (PAPER_SPLITS - 1))


def chance(splits: int) -> float:
    """|t| that is exceeded once in 20 times by chance, over so many splits."""
    return float(stdtrit(splits - 1, 0.975))


@dataclass(frozen=True)
class Paired:
    """A difference over the splits that both sides have."""

    mean: float
    error: float
    splits: int

    @property
    def t(self) -> float:
        return self.mean / max(1e-12, self.error)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval, by Student's t."""
        half = self.error * chance(self.splits)
        return self.mean - half, self.mean + half


def paired(ours: Mapping[int, float], base: Mapping[int, float]) -> Paired | None:
    """The difference split by split, by split seed; None with fewer than two splits in common."""
    gaps = [ours[seed] - base[seed] for seed in ours if seed in base]
    if len(gaps) < 2:
        return None
    return Paired(float(np.mean(gaps)), standard_error(gaps), len(gaps))
