"""Blocks give what the whole gives; a refiner sees in N + 1 coordinates what it would see in D."""

import math

import numpy as np
import pytest
import torch

from semishot import refine
from semishot.errors import InputError
from semishot.estimator import blocks
from semishot.estimator.blocks import Space
from support.tensors import randn

N, S, U, D = 3, 6, 11, 8
KINDS = ["none", "unit", "centered"]


def space(kind: str) -> Space:
    return Space(kind, 0.1 * randn(D, seed=5), 0.7)


def literal_scaled(kind, rows):
    """Plain loops: direction, seen from the center, direction again, over the length."""
    here = space(kind)
    out = []
    for row in rows.tolist():
        if kind == "centered":
            length = math.sqrt(sum(x * x for x in row))
            row = [x / length - c for x, c in zip(row, here.center.tolist(), strict=True)]
        if kind != "none":
            length = math.sqrt(sum(x * x for x in row))
            row = [x / length for x in row]
        out.append([x / 0.7 for x in row])
    return out


@pytest.fixture(autouse=True, params=[1, 3 * D, 10**6])
def block(request, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", request.param)


@pytest.mark.parametrize("kind", KINDS)
def test_a_space_is_what_plain_loops_say(kind):
    rows = randn(U, D)
    expected = torch.tensor(literal_scaled(kind, rows), dtype=torch.float64)
    assert torch.allclose(space(kind)(rows), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_coordinates_keep_the_distances_to_prototypes_and_origin(kind):
    rows, prototypes = randn(U, D), randn(N, D, seed=1)
    seen, landmarks = blocks.coordinates(rows.numpy(), space(kind), prototypes)
    assert seen.shape == (U, N + 1)
    assert landmarks.shape == (N, N + 1)
    for row, few in zip(literal_scaled(kind, rows), seen.tolist(), strict=True):
        assert math.isclose(sum(x * x for x in row), sum(x * x for x in few))
        for prototype, landmark in zip(prototypes.tolist(), landmarks.tolist(), strict=True):
            there = sum((a - b) ** 2 for a, b in zip(row, prototype, strict=True))
            here = sum((a - b) ** 2 for a, b in zip(few, landmark, strict=True))
            assert math.isclose(there, here)


def test_more_classes_than_features_keep_their_distances():
    rows, prototypes = randn(U, 2), randn(5, 2, seed=1)
    here = Space("none", torch.zeros(2, dtype=torch.float64))
    seen, landmarks = blocks.coordinates(rows.numpy(), here, prototypes)
    assert torch.allclose(torch.cdist(seen, landmarks), torch.cdist(rows, prototypes))


@pytest.mark.parametrize("kind", KINDS)
def test_eqs_1_4_9_in_blocks_match_literal_loops(kind):
    rows, weights = randn(U, D), randn(U, N, seed=2).abs()
    weights[:, 1] = 0  # a class that has nothing gets the zero vector
    scaled = literal_scaled(kind, rows)
    expected = torch.zeros(N, D, dtype=torch.float64)
    for c in (0, 2):
        total = sum(float(weights[j, c]) for j in range(U))
        for d in range(D):
            expected[c, d] = sum(float(weights[j, c]) * scaled[j][d] for j in range(U)) / total
    assert torch.allclose(blocks.prototypes_in_blocks(rows.numpy(), space(kind), weights), expected)


@pytest.mark.parametrize(
    "name", ["soft_kmeans", "fitted_mask", "distractor_cluster", "oslo", "label_propagation"]
)
def test_refinement_in_blocks_is_refined_prototypes(name):
    """The labeled rows lie among the others, the scale is that of Eq. 2."""
    refiner = refine.build(name).double()
    rows = randn(S + U, D)
    labels = torch.zeros(S + U, N, dtype=torch.float64)
    for place, row in enumerate([0, 3, 4, 8, 9, 15]):
        labels[row, place % N] = 1
    known = labels.sum(-1) == 1
    here = Space("none", torch.zeros(D, dtype=torch.float64))
    found = blocks.refined_in_blocks(refiner, rows.numpy(), labels, here, steps=3)
    expected = refine.refined_prototypes(refiner, rows[known], labels[known], rows[~known], 3)
    assert torch.allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_refiner_that_compares_examples_gets_their_features(kind):
    """In every space: the scaled features, in their order, of the unlabeled alone."""
    given = []

    class Watching(torch.nn.Module):
        needs_support = True

        def forward(self, unlabeled, prototypes, support, labels):
            given.extend([unlabeled, prototypes, support, labels])
            return unlabeled.new_zeros(len(unlabeled), N)

    rows, labels = randn(U, D), torch.zeros(U, N, dtype=torch.float64)
    for place, row in enumerate([9, 0, 4]):
        labels[row, place] = 1
    known = labels.sum(-1) == 1
    here, scaled = space(kind), torch.tensor(literal_scaled(kind, rows), dtype=torch.float64)
    found = blocks.refined_in_blocks(Watching(), rows.numpy(), labels, here, steps=1)
    expected = (scaled[~known], found, scaled[known], labels[known])  # no weights: Eq. 1 stays
    for one, other in zip(given, expected, strict=True):
        assert torch.allclose(one, other)


def test_more_features_than_fit_are_refused_for_such_a_refiner(monkeypatch):
    monkeypatch.setattr(blocks, "MOST_NUMBERS", 10 * D)
    labels = torch.zeros(U + N, N, dtype=torch.float64)
    labels[:N] = torch.eye(N)
    here, rows = space("none"), randn(U + N, D).numpy()
    with pytest.raises(InputError, match=r"at most 10 of 8 numbers, not 11: give fewer, or choose"):
        blocks.refined_in_blocks(refine.build("oslo"), rows, labels, here, steps=1)
    blocks.refined_in_blocks(refine.build("soft_kmeans"), rows, labels, here, steps=1)


def test_directions_stay_directions():
    here = space("centered")
    labels = torch.eye(N, dtype=torch.float64).repeat(2, 1)
    found = blocks.refined_in_blocks(None, randn(S, D).numpy(), labels, here, steps=1)
    assert torch.allclose(found.norm(dim=-1), torch.full((N,), 1 / 0.7, dtype=torch.float64))


def test_mean_direction_matches_plain_loops():
    rows = randn(U, D)
    expected = np.mean([row / np.linalg.norm(row) for row in rows.numpy()], axis=0)
    assert np.allclose(blocks.mean_direction(rows.numpy()), expected)


def test_one_thread_is_for_the_time_being():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with blocks.one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
