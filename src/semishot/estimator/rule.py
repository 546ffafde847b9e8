"""The learned rule: statistics of a pile in, the probability of each class and of a stranger out.

A network of some 44,000 weights that has learned from many piles (benchmarks/learn_rule.py), as the paper
learns its masks from episodes. It does not depend on the order of rows or of classes:

    h1[r, n] = relu(W [what is said of row r and class n] + C [what is said of the pile])
    h2[r, n] = relu(h1 W1 + mean_n h1 W2 + max_n h1 W3 + mean over the pile of h1[., n] W4
                    + mean over the pile of max_n h1 W5
                    + means over held-out labels of h1 of their class W6 and of the best other class W7)
    logit[r, n] = h2 . v;  P(stranger | r) = sigmoid(g(max_n h2, mean_n h2))

How sure it is of the pile as a whole is one more number: all log-odds of strangers may be off together by
a normal deviate of spread `doubt`.
Letters: P rows, C rows at once, N classes, D features, K rows of the context, H held-out labels, A numbers,
W hidden units.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from scipy.special import softmax

from semishot.estimator.answers import Answer
from semishot.estimator.neighbours import Near, find_near
from semishot.estimator.spaces import Array, Space, by_blocks, unit
from semishot.estimator.statistics import Reference, Statistics
from semishot.system.tensor_files import read_arrays

WEIGHTS = Path(__file__).parent / "rule.safetensors"
SMALLEST_SPREAD = 0.02
WIDER = 1.7
"""What the shared doubt is multiplied with: the network doubts piles of new kinds less than it should. With
this nine of ten intervals hold on the piles that choices are made on."""
WIDE = 2000
"""Numbers that the statistics of a row take, about."""


class PileTerms(NamedTuple):
    """What all rows of a pile share: terms of both layers, and the shared doubt."""

    center: Array  # (10,), mean over the pile of each number's best class
    spread: Array  # (10,)
    row_center: Array  # (10,)
    row_spread: Array  # (10,)
    first: Array  # (W,), what the pile adds in the first layer
    second: Array  # (N, W), in the second
    doubt: float


@dataclass(frozen=True)
class Rule:
    """The weights of the network, float32."""

    weights: dict[str, Array]

    def summarize(
        self, pile: Array, context: Statistics, held_out: Statistics, classes: Array
    ) -> PileTerms:
        """Numbers of the pile (A,), rows of it (K, N, 10), held-out labels and their classes (H,)."""
        w = self.weights
        pairs, rows = (each if len(each) else np.zeros((1, *each.shape[1:])) for each in context)
        best = pairs.max(1)
        scale = (best.mean(0), best.std(0), rows.mean(0), rows.std(0))
        scale = tuple(each.astype(np.float32) for each in scale)
        first = w["pile.bias"] + pile @ w["pile"]
        shared = PileTerms(*scale, first.astype(np.float32), np.zeros(0), 0.0)
        of_context = self._first(shared, context)  # (N, K, W)
        of_labels = self._first(shared, held_out)  # (N, H, W)
        by_class, largest = mean(of_context, 1), mean(of_context.max(0), 0)
        here = classes, np.arange(len(classes))
        own = mean(of_labels[here], 0)
        of_labels[here] = 0.0
        other, labels = mean(of_labels.max(0), 0), np.log1p(len(classes)) / 3
        terms = np.concatenate([largest, own, other, [labels]])  # (3 W + 1,)
        second = w["second.bias"] + by_class @ w["class"] + terms @ w["shared"]
        hidden = np.maximum(np.concatenate([terms, pile]) @ w["doubt.1"] + w["doubt.1.bias"], 0)
        doubt = WIDER * float(np.exp(hidden @ w["doubt.2"] + w["doubt.2.bias"])[0])
        return shared._replace(second=second.astype(np.float32), doubt=doubt)

    def _first(self, shared: PileTerms, seen: Statistics) -> Array:
        """(N, C, W)"""
        w, rows = self.weights, seen.rows
        pairs = np.ascontiguousarray(seen.pairs.swapaxes(0, 1))  # (N, C, 10)
        of_row = np.concatenate([rows, standardized(rows, shared.row_center, shared.row_spread)], 1)
        scaled = standardized(pairs, shared.center, shared.spread)
        of_pair = np.concatenate([pairs, pairs - best_other(pairs), scaled], -1)  # (N, C, 30)
        hidden: Array = of_pair @ w["pair"]
        hidden += of_row @ w["row"] + shared.first
        np.maximum(hidden, 0, out=hidden)
        return hidden

    def logits(self, shared: PileTerms, seen: Statistics) -> tuple[Array, Array]:
        """Logits of classes (C, N), and log-odds of a stranger (C,)."""
        w = self.weights
        first = self._first(shared, seen)
        h = first @ w["own"]  # (N, C, W)
        h += np.concatenate([first.mean(0), first.max(0)], 1) @ w["across"]
        h += shared.second[:, None]
        np.maximum(h, 0, out=h)
        pooled = np.concatenate([h.max(0), h.mean(0)], 1)
        hidden = np.maximum(pooled @ w["stranger.1"] + w["stranger.1.bias"], 0)
        stranger = hidden @ w["stranger.2"] + w["stranger.2.bias"]
        return (h @ w["logit"])[..., 0].T, stranger[:, 0]


def mean(values: Array, axis: int) -> Array:
    """Zeros of nothing."""
    average: Array = values.sum(axis) / max(values.shape[axis], 1)
    return average


def best_other(pairs: Array) -> Array:
    """(N, C, A) -> (N, C, A), the largest number of any other class; its own where there is one class."""
    if len(pairs) == 1:
        return pairs
    best = second = np.full_like(pairs[0], -np.inf)
    for each in pairs:  # np.partition is slower
        second = np.maximum(second, np.minimum(best, each))
        best = np.maximum(best, each)
    other: Array = np.where(pairs == best, second, best)
    return other


def standardized(values: Array, center: Array, spread: Array) -> Array:
    scaled: Array = ((values - center) / (spread + SMALLEST_SPREAD)).clip(-5, 5)
    return scaled


@cache
def rule_digest() -> str:
    """What tells the rule from that of another version: a pile's terms are worth nothing to it."""
    return hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()


@cache
def learned_rule() -> Rule:
    """The rule that comes with the package."""
    return Rule({name: each.astype(np.float32) for name, each in read_arrays(WEIGHTS)[0].items()})


def answer_of(shared: PileTerms, seen: Statistics) -> Answer:
    """Statistics of C rows -> what the learned rule says of them."""
    logits, log_odds = learned_rule().logits(shared, seen)
    return Answer(softmax(logits.astype(np.float64), 1), log_odds.astype(np.float64))


class RuleModel(Struct, frozen=True, tag=True):
    """The learned rule beside a pile."""

    space: Space
    reference: Reference
    shared: PileTerms

    @property
    def prototypes(self) -> Array:
        """(N, D), of the labels and of what the pile adds to them, unit length."""
        return unit(self.reference.sums[2])

    def __call__(self, features: Any, near: Near | None = None) -> Answer:
        """(P, D) -> what is said of these rows. Their neighbours may be known."""
        known = self.reference

        def answer(part: slice, block: Array) -> Answer:
            x = self.space(block)
            beside = find_near(x, known.rows, known.same) if near is None else near.take(part)
            return answer_of(self.shared, known.statistics(x, self.space.directions(block), beside))

        return by_blocks(answer, features, WIDE)
