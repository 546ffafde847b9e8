"""Made-up piles: features around the centers of some classes and of strangers."""

import numpy as np


def pile(members=60, strangers=40, shot=3, named=0, noise=1.5, seed=0, classes=3, features=40):
    """Features, labels (-1 for the pile, -2 for named strangers) and the truth: `classes` is a stranger."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(9).normal(size=(classes + 1, features))
    sizes = [*[shot + members // classes] * classes, strangers]
    truth = np.repeat(np.arange(classes + 1), sizes)
    x = centers[truth] + noise * rng.normal(size=(len(truth), features))
    y = np.full(len(truth), -1)
    for c in range(classes):
        y[np.flatnonzero(truth == c)[:shot]] = c
    y[np.flatnonzero(truth == classes)[:named]] = -2
    return x, y, truth
