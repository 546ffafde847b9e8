"""Which examples belong to no class: how members and strangers score, the cutoff, the probability.

A score is high for members. How members score is known from held-out labels and a prior, as Student's
distribution; how strangers score is learned from the pile by expectation-maximization.
Letters: U unlabeled rows, H held-out labels, N classes.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta
from scipy.special import expit, gammaln, stdtr, stdtrit

from semishot.estimator import constants as const
from semishot.estimator.spaces import Array, Positive


@dataclass(frozen=True)
class Members:
    """How members of a class score: Student's distribution, and held-out scores that correct it."""

    mean: float
    spread: Positive
    freedom: Positive
    skew: Positive = 1.0  # the tail towards strangers is this much wider
    held_out: tuple[float, ...] = ()  # ascending

    def share_above(self, scores: Array) -> Array:
        """The share of members that score higher than these."""
        if not self.held_out:
            z = (np.asarray(scores) - self.mean) / (self.skew * self.spread)
            share: Array = stdtr(self.freedom, -z)
            return share
        shares, quantiles = self._table
        return 1 - np.interp(scores, quantiles, shares)

    def cutoff(self, reject: float) -> float:
        """The score below which a share `reject` of the members lies."""
        if not self.held_out:
            return float(self._student(reject))
        shares, quantiles = self._table
        return float(np.interp(reject, shares, quantiles))

    def _student(self, share: Any) -> Any:
        return self.mean + self.skew * self.spread * stdtrit(self.freedom, share)

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        """Shares and their quantiles: Student's, mixed with those of the held-out scores (a share i / (H + 1)
        of new scores is expected below the i-th smallest of H) within their range."""
        shares = expit(np.linspace(-12, 12, 4097))
        count = len(self.held_out)
        own = np.interp(shares, np.arange(1, count + 1) / (count + 1), self.held_out)
        beyond = np.minimum(shares, 1 - shares) * (count + 1)  # 1 at the smallest and the largest
        weight = count / (count + const.EMPIRICAL) * ((beyond - 0.9) / 0.1).clip(0, 1)
        mixed = (1 - weight) * self._student(shares) + weight * own
        return shares, np.minimum.accumulate(mixed[::-1])[::-1]


class MemberPrior(NamedTuple):
    """How members are expected to score before any label is held out."""

    mean: float
    variance: float
    worth: float  # held-out labels that the mean counts as


class Strangers(NamedTuple):
    """How strangers score, and their share of the pile."""

    mean: float
    variance: Positive
    share: Annotated[float, Meta(gt=0, lt=1)]


class StrangerCount(NamedTuple):
    """How many rows of the pile belong to no class: expected, and an interval that holds 90 %."""

    expected: float
    low: float
    high: float


def members_by(held_out: Array, prior: MemberPrior) -> Members:
    """Held-out scores (H,), the prior: the prediction of another one, of unknown mean and variance."""
    count, own = len(held_out), prior.worth
    mean = held_out.mean() if count else prior.mean
    worth = own + count
    squares = ((held_out - mean) ** 2).sum() + own * count / worth * (mean - prior.mean) ** 2
    variance = (const.VARIANCE_WORTH * prior.variance + squares) / (const.VARIANCE_WORTH + count)
    center = (own * prior.mean + count * mean) / worth
    spread = np.sqrt(variance * (1 + 1 / worth))
    ascending = tuple(np.sort(held_out).tolist())
    return Members(
        float(center), float(spread), const.VARIANCE_WORTH + count, const.SKEW, ascending
    )


def strangers_by(
    scores: Array,
    second: Array,
    members: Members,
    named: Array,
    expected: float = const.STRANGER_VARIANCE,
) -> Strangers:
    """Pile scores (U,), second-best ones (U,), those of named strangers -> the rest of the mixture, by EM.
    Second-best scores, and the expected variance, keep it defined where the pile has no stranger at all."""
    mean, variance, share = members.mean - const.FAR * members.spread, expected, 0.4
    second = np.maximum(second, members.mean - const.FARTHEST * members.spread)
    if len(second):
        mean = float(second.mean())
    for _ in range(const.EM_ROUNDS):
        p = stranger_probability(scores, members, Strangers(mean, variance, share))  # (U,)
        anchors = (
            const.ANCHOR * (1 - p) if len(p) == len(second) else np.full(len(second), const.ANCHOR)
        )
        weights = np.concatenate([p, anchors, np.ones(len(named))])
        values = np.concatenate([scores, second, named])
        total = weights.sum()
        mean = min((weights @ values) / max(total, const.TINY), members.mean - members.spread)
        squares = weights @ (values - mean) ** 2
        variance = (squares + const.STRANGER_WORTH * expected) / (total + const.STRANGER_WORTH)
        share = float(np.clip((p.sum() + 1) / (len(p) + 4), 0.001, 0.999))
    return Strangers(float(mean), float(variance), share)


def stranger_probability(scores: Array, members: Members, strangers: Strangers) -> Array:
    """(U,) -> (U,), Bayes' rule: falls with the score, and stays where a component's tail would turn it."""
    s = np.clip(scores, min(strangers.mean, members.mean), members.mean)
    f, v = members.freedom, strangers.variance
    z = (s - members.mean) / members.spread
    inside = -(f + 1) / 2 * np.log1p(z**2 / f) - np.log(members.spread)
    inside += gammaln((f + 1) / 2) - gammaln(f / 2) - np.log(np.pi * f) / 2  # Student's density
    outside = -((s - strangers.mean) ** 2) / (2 * v) - np.log(2 * np.pi * v) / 2
    odds = np.log(strangers.share) - np.log1p(-strangers.share)
    probability: Array = expit(outside - inside + odds)
    return probability


def count_strangers(
    scores: Array, stranger: Array, members: Members, error: float
) -> StrangerCount:
    """Scores (U,) and probabilities (U,) of the pile, the standard error of the members' mean.

    The mean of two estimates: the sum of the probabilities; and what is left of the pile if as many members
    score below their median as above it. The interval of the second adds chance and the error of the mean.
    """

    def beyond_the_median(shift: float) -> float:
        middle = members.cutoff(0.5) + shift
        return max(0.0, len(scores) - 2.0 * float((scores > middle).sum()))

    by_mixture, by_median = float(stranger.sum()), beyond_the_median(0.0)
    ends = [beyond_the_median(sign * const.NORMAL_90 * error) for sign in (-1, 1)]
    chance = const.NORMAL_90 * max(1.0, len(scores) - by_median) ** 0.5
    low = by_median - float(np.hypot(chance, by_median - min(ends)))
    high = by_median + float(np.hypot(chance, max(ends) - by_median))
    return StrangerCount(
        (by_mixture + by_median) / 2,
        max(0.0, min(low, by_mixture)),
        min(float(len(scores)), max(high, by_mixture)),
    )


def missed(expected: float, pile: Array, reject: float) -> float:
    """How many of `expected` strangers are likely not rejected, by the shares of members above (U,): of those
    rejected, a share `reject` of the members is no stranger."""
    members = len(pile) - expected
    return max(0.0, expected - max(0.0, float((pile > 1 - reject).sum()) - reject * members))
