"""The rule of a refiner: prototypes, temperature, members of the pile, recomputed with plain loops."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from semishot import PrototypeClassifier, refine
from semishot.errors import InputError
from semishot.estimator.prototype_rule import MOVES, Trial, temperature_of
from semishot.estimator.spaces import Normalized, squared_distances

N, S, U, D = 3, 6, 11, 8
KINDS = ["none", "unit", "centered"]
EVERY_NAME = ["soft_kmeans", "fitted_mask", "oslo", "label_propagation"]
PLAIN = Normalized("none", np.zeros(D))


def randn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def one_hot(classes):
    return np.eye(N)[classes]


def test_squared_distances_match_plain_loops():
    a, b = randn(U, D) + 1e4, randn(N, D, seed=1) + 1e4
    expected = [[sum((x - y) ** 2 for x, y in zip(r, p, strict=True)) for p in b] for r in a]
    assert np.allclose(squared_distances(a, b), expected)


@pytest.mark.parametrize("name", EVERY_NAME)
def test_refinement_is_that_of_the_paper(name):
    """The scale is that of Eq. 2: raw features."""
    refiner = refine.build(name).double()
    support, pile, labels = randn(S, D), randn(U, D, seed=1), one_hot([0, 1, 2, 0, 1, 2])
    refined = Trial(PLAIN, support, labels, pile, refiner, 3).prototypes()
    tensors = [torch.from_numpy(each) for each in (support, labels, pile)]
    assert np.allclose(refined, refine.refined_prototypes(refiner, *tensors, 3), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_of_a_refiner_make_prototypes(kind):
    """In every space; prototypes of directions stay directions."""
    weights, given = np.abs(randn(U, N, seed=2)), []

    class Watching(torch.nn.Module):
        needs_support = True

        def forward(self, *tensors):
            given.extend(tensors)
            return torch.from_numpy(weights)

    space, labels = Normalized(kind, 0.1 * randn(D, seed=5), 0.7), one_hot([0, 1, 2, 0, 1, 2])
    support, pile = (space(randn(size, D, seed=size)) for size in (S, U))
    refined = Trial(space, support, labels, pile, Watching()).prototypes()
    start = Trial(space, support, labels, pile).prototypes()
    for mine, other in zip(given, (pile, start, support, labels), strict=True):
        assert np.allclose(mine, other)
    for c in range(N):  # Eqs. 4, 9
        total = sum(labels[:, c]) + sum(weights[:, c])
        p = sum(w * x for w, x in zip(labels[:, c], support, strict=True))
        p = (p + sum(w * x for w, x in zip(weights[:, c], pile, strict=True))) / total
        assert np.allclose(refined[c], p if kind == "none" else p / np.linalg.norm(p) / 0.7)


@pytest.mark.parametrize("classes", [[0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 2], [0] * 7 + [1, 1, 2]])
def test_held_out_examples_are_measured_without_themselves(classes):
    support = randn(len(classes), D)
    logits, owners = Trial(PLAIN, support, one_hot(classes), support[:0]).held_out()
    folds = min(5, max(classes.count(c) for c in range(N)))
    rank = [classes[:i].count(c) for i, c in enumerate(classes)]
    rows = []
    for fold in range(folds):
        out = [i for i, c in enumerate(classes) if rank[i] % folds == fold and classes.count(c) > 1]
        for i in out:
            row = []
            for c in range(N):
                rest = [support[k] for k in range(len(classes)) if classes[k] == c and k not in out]
                row.append(-float(((support[i] - sum(rest) / len(rest)) ** 2).sum()))
            rows.append((row, classes[i]))
    assert np.allclose(logits, [r for r, _ in rows])
    assert owners.tolist() == [c for _, c in rows]


def test_the_temperature_is_a_share_of_the_distance_between_prototypes_moved_by_held_out_labels():
    """One label per class: the share alone. More: the move that costs least."""
    classes = np.repeat(np.arange(N), 7)
    support = randn(N, D)[classes] + 2 * randn(len(classes), D, seed=1)
    single = Trial(PLAIN, support[::7], one_hot([0, 1, 2]), support[:0])
    pairs = [(a, b) for a in support[::7] for b in support[::7]]
    between = sum(float(((a - b) ** 2).sum()) for a, b in pairs) / (N * (N - 1))
    assert math.isclose(temperature_of(single), 0.055 * between)
    equal = replace(single, support=np.ones((N, D)))
    assert temperature_of(equal) == 1
    trial = Trial(PLAIN, support, one_hot(classes), support[:0])
    logits, owners = trial.held_out()
    p = trial.prototypes()
    rule = 0.055 * sum(float(((a - b) ** 2).sum()) for a in p for b in p) / (N * (N - 1))

    def cost(move):
        t = rule * move
        rows = zip(logits.tolist(), owners.tolist(), strict=True)
        loss = sum(math.log(sum(math.exp(x / t) for x in row)) - row[c] / t for row, c in rows)
        return loss + (math.log(move) / 0.5) ** 2 / 2

    assert math.isclose(temperature_of(trial), rule * min(MOVES.tolist(), key=cost))


# By name in the estimator


def test_a_name_outside_the_package_is_not_imported():
    with pytest.raises(InputError, match="'antigravity:Refiner' is not part of semishot"):
        PrototypeClassifier("antigravity:Refiner").fit(randn(N, D), [0, 1, 2])
