"""The certificate of an audit: how many of a pile are wrong at most, by a random sample of it.

Of M decisions an unknown number R is wrong. They are looked at in random order, without replacement; after
n of them w were wrong. The bound holds at every n at once, so a person may stop at any moment.

If R = r, the order of the answers has the probability L_n(r) = r(r-1).. (w factors) times (M-r)(M-r-1)..
(n - w factors) over M(M-1).. (n factors). For any weights g, the average of L_n(s) over s < r, over L_n(r),
is then a martingale that begins at 1: it ever reaches 1 / (1 - confidence) with a probability of at most
1 - confidence (Ville's inequality). So all r where it has not are possible, and the largest is the bound.
The weights g(s) = (s + 1/2)^(-1/2) give few wrong ones a chance to be shown soon.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from semishot.data.splits import random_words
from semishot.errors import InputError

__all__ = ["CONFIDENCE", "audit_order", "most_wrong"]

CONFIDENCE = 0.95


def audit_order(images: Sequence[int], seed: int) -> NDArray[np.int64]:
    """The order in which images (M,), known by their numbers, are looked at: uniformly random.

    Whether one image comes before another depends on the seed and these two numbers alone.
    """
    numbers = np.unique(np.asarray(images, np.int64))
    if not len(numbers):
        return numbers
    words = random_words(seed, "audit", 0, int(numbers[-1]) + 1)
    ordered: NDArray[np.int64] = numbers[np.argsort(words[numbers], kind="stable")]
    return ordered


def most_wrong(size: int, looked: int, wrong: int, confidence: float = CONFIDENCE) -> int:
    """How many of `size` decisions are wrong at most, `wrong` of the `looked` at among them.

    Parameters
    ----------
    size
        M, the decisions that were drawn from.
    looked
        n, those that were looked at: the first of a random order.
    wrong
        w, how many of these were wrong.
    confidence
        With at least this probability, the bound is true at all n.
    """
    from scipy.special import gammaln  # `label` begins before SciPy is there

    if not (0 <= wrong <= looked <= size and 0 < confidence < 1):
        raise InputError(
            f"of {size} decisions {looked} were looked at and {wrong} wrong, at confidence {confidence}: "
            "expected 0 <= wrong <= looked <= size and 0 < confidence < 1"
        )
    possible = np.arange(wrong, size - (looked - wrong) + 1.0)  # where L is not 0
    right = size - possible
    chances = gammaln(possible + 1) - gammaln(possible - wrong + 1)
    chances += gammaln(right + 1) - gammaln(right - (looked - wrong) + 1)
    weights = (np.arange(size + 1) + 0.5) ** -0.5  # g
    terms = np.log(weights[wrong:][: len(possible)]) + chances
    mixed = np.logaddexp.accumulate(terms)[:-1]  # of s < r
    below = np.cumsum(weights)[wrong:][: len(mixed)]  # of s < r, also where L is 0
    martingale = mixed - np.log(below) - chances[1:]
    kept = np.flatnonzero(martingale < -np.log1p(-confidence))
    return int(possible[kept[-1] + 1] if len(kept) else possible[0])
