"""The rule of a refiner: scale, temperature and the use of the pile, recomputed with plain loops."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from semishot import PrototypeClassifier, refine
from semishot.errors import InputError
from semishot.estimator import constants as const
from semishot.estimator.models import pile_verdict
from semishot.estimator.prototype_rule import (
    Trial,
    choose_space,
    held_out_distances,
    held_out_loss,
    members_held_out,
    members_in_pile,
    temperature_of,
    try_pile,
)
from semishot.estimator.spaces import Space, mean_direction, squared_distances

N, S, U, D = 3, 6, 11, 8
KINDS = ["none", "unit", "centered"]
EVERY_NAME = ["soft_kmeans", "fitted_mask", "oslo", "label_propagation"]


def randn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def one_hot(classes):
    return np.eye(N)[classes]


def space_of(kind):
    return Space(kind, 0.1 * randn(D, seed=5), 0.7)


def literal_scaled(kind, rows):
    """Plain loops: direction, seen from the center, direction again, over the length."""
    space, out = space_of(kind), []
    for row in rows.tolist():
        if kind == "centered":
            length = math.sqrt(sum(x * x for x in row))
            row = [x / length - c for x, c in zip(row, space.center.tolist(), strict=True)]
        if kind != "none":
            length = math.sqrt(sum(x * x for x in row))
            row = [x / length for x in row]
        out.append([x / 0.7 for x in row])
    return np.array(out)


@pytest.mark.parametrize("kind", KINDS)
def test_a_space_is_what_plain_loops_say(kind):
    rows = randn(U, D)
    assert np.allclose(space_of(kind)(rows), literal_scaled(kind, rows))


def test_squared_distances_match_plain_loops():
    a, b = randn(U, D) + 1e4, randn(N, D, seed=1) + 1e4
    expected = [[sum((x - y) ** 2 for x, y in zip(r, p, strict=True)) for p in b] for r in a]
    assert np.allclose(squared_distances(a, b), expected)
    with pytest.raises(InputError, match="distances between rows are not finite in float32"):
        squared_distances(np.full((1, D), 1e30, np.float32), b.astype(np.float32))


@pytest.mark.parametrize("name", EVERY_NAME)
def test_refinement_is_that_of_the_paper(name):
    """The scale is that of Eq. 2: raw features."""
    refiner, plain = refine.build(name).double(), Space("none", np.zeros(D))
    support, pile, labels = randn(S, D), randn(U, D, seed=1), one_hot([0, 1, 2, 0, 1, 2])
    found = Trial(support, labels, pile, plain, refiner, 3).prototypes()
    tensors = [torch.from_numpy(each) for each in (support, labels, pile)]
    assert np.allclose(found, refine.refined_prototypes(refiner, *tensors, 3), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_refiner_is_given_scaled_features_and_its_weights_make_prototypes(kind):
    """In every space; prototypes of directions stay directions."""
    weights, given = np.abs(randn(U, N, seed=2)), []

    class Watching(torch.nn.Module):
        needs_support = True

        def forward(self, *tensors):
            given.extend(tensors)
            return torch.from_numpy(weights)

    support, pile, labels = randn(S, D), randn(U, D, seed=1), one_hot([0, 1, 2, 0, 1, 2])
    space = space_of(kind)
    found = Trial(support, labels, pile, space, Watching()).prototypes()
    known, rows = literal_scaled(kind, support), literal_scaled(kind, pile)
    start = Trial(support, labels, pile, space).prototypes()
    for one, other in zip(given, (rows, start, known, labels), strict=True):
        assert np.allclose(one, other)
    for c in range(N):  # Eqs. 4, 9
        total = sum(labels[:, c]) + sum(weights[:, c])
        p = sum(w * x for w, x in zip(labels[:, c], known, strict=True))
        p = (p + sum(w * x for w, x in zip(weights[:, c], rows, strict=True))) / total
        assert np.allclose(found[c], p if kind == "none" else p / np.linalg.norm(p) / 0.7)


def test_a_pile_that_does_not_fit_into_memory_is_refused(monkeypatch):
    monkeypatch.setattr(const, "MOST_NUMBERS", 10 * D)
    y = np.array([0, 1, 2, *[-1] * U])
    with pytest.raises(InputError, match=r"at most 10 of 8 numbers, not 11: give fewer, or choose"):
        PrototypeClassifier("soft_kmeans").fit(randn(N + U, D), y)


# Normalization and temperature


@pytest.mark.parametrize("classes", [[0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 2], [0] * 7 + [1, 1, 2]])
def test_held_out_examples_are_measured_without_themselves(classes):
    support, plain = randn(len(classes), D), Space("none", np.zeros(D))
    distances, found = held_out_distances(Trial(support, one_hot(classes), support[:0], plain))
    folds = min(5, max(classes.count(c) for c in range(N)))
    rank = [classes[:i].count(c) for i, c in enumerate(classes)]
    rows = []
    for fold in range(folds):
        out = [i for i, c in enumerate(classes) if rank[i] % folds == fold and classes.count(c) > 1]
        for i in out:
            row = []
            for c in range(N):
                rest = [support[k] for k in range(len(classes)) if classes[k] == c and k not in out]
                row.append(float(((support[i] - sum(rest) / len(rest)) ** 2).sum()))
            rows.append((row, classes[i]))
    assert np.allclose(distances, [r for r, _ in rows])
    assert found.tolist() == [c for _, c in rows]


def test_the_temperature_is_a_share_of_the_distance_between_prototypes_moved_by_held_out_labels():
    prototypes, distances = randn(N, D), 3 * randn(20, N, seed=1) ** 2
    classes = np.arange(20) % N
    pairs = [(a, b) for a in range(N) for b in range(N) if a != b]
    between = sum(float(((prototypes[a] - prototypes[b]) ** 2).sum()) for a, b in pairs)
    rule = temperature_of(prototypes, distances[:0], classes[:0])
    assert math.isclose(rule, 0.055 * between / len(pairs))
    assert temperature_of(prototypes[:1], distances[:0, :1], classes[:0]) == 1

    def loss(t):
        rows = zip(distances.tolist(), classes.tolist(), strict=True)
        return sum(row[c] / t + math.log(sum(math.exp(-d / t) for d in row)) for row, c in rows)

    def cost(t):
        return loss(t) + (math.log(t / rule) / 0.5) ** 2 / 2

    found = temperature_of(prototypes, distances, classes)
    assert cost(found) <= min(cost(found * factor) for factor in (0.9, 0.95, 1.06, 1.1))
    assert found > rule  # these labels are noise: less certainty
    assert math.isclose(held_out_loss(distances, classes, 2.0), loss(2.0))


@pytest.mark.parametrize("classes", [[0, 1, 2], [0] * 6 + [1] * 4 + [2]])
@pytest.mark.parametrize(("features", "kind"), [(4, "none"), (64, "centered")])
def test_a_class_of_one_example_goes_by_the_number_of_features(classes, features, kind):
    """The example cannot be held out: what suits the larger classes is no evidence for its class."""
    support = 4 + randn(N, features)[classes] + 0.5 * randn(len(classes), features, seed=1)
    found = choose_space(support, one_hot(classes), mean_direction(support), "auto", None)
    assert found.normalization == kind
    given = choose_space(support, one_hot(classes), mean_direction(support), "unit", 0.25)
    assert (given.normalization, given.length) == ("unit", 0.5)


# Whether unlabeled examples help


def clusters(shot, members, strangers, seed=0):
    """Three classes far apart, and a fourth cluster, as far, that is none of them; and their space."""
    centers = 6 * np.eye(4, 16)
    classes = np.repeat(np.arange(3), shot)
    support = centers[classes] + randn(3 * shot, 16, seed=seed)
    pile = np.concatenate([np.tile(centers[:3], (members, 1)), np.tile(centers[3], (strangers, 1))])
    pile = pile + randn(len(pile), 16, seed=seed + 1)
    space = choose_space(support, one_hot(classes), np.zeros(16), "none", None)
    return Trial(support, one_hot(classes), pile, space)


def test_a_pile_of_members_helps_and_one_that_misleads_is_left_out():
    """Soft k-means takes strangers for members of the class they are nearest to, and goes to them."""
    found = try_pile(replace(clusters(2, 20, 0), refiner=refine.build("fitted_mask")))
    assert found.helps is True
    assert found.message.endswith("the pile is used")
    assert found.distances.shape == (6, 3)
    trial = clusters(4, 0, 0)
    support, labels = trial.support / 2, trial.labels  # the classes overlap
    space = choose_space(support, labels, np.zeros(16), "none", None)
    beyond = 3 * support[4:8].mean(0) + 2 * support[:4].mean(0) + 0.5 * randn(300, 16, seed=3)
    trial = Trial(support, labels, beyond, space, refine.build("soft_kmeans"), 3)
    found = try_pile(trial)
    assert found.helps is False
    assert "the pile does not help" in found.message
    assert np.array_equal(found.distances, try_pile(replace(trial, refiner=None)).distances)


def test_nothing_to_tell_by_is_said():
    trial = replace(clusters(1, 5, 0), refiner=refine.build("fitted_mask"))
    assert "cannot test whether the pile helps" in try_pile(trial).message
    assert "no unlabeled examples" in try_pile(replace(trial, pile=trial.pile[:0])).message
    assert "no refiner" in try_pile(replace(trial, refiner=None)).message


WITH = "held-out labels right with the pile,"
WITHOUT = "held-out labels right without the pile,"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ((9, 8, 7, 0.4, True), f"8 of 9 {WITH} 7 without it, and together more"),
        ((9, 1, 1, -0.001, True), f"1 of 9 {WITH} 1 without it, and together equally"),
        ((9, 7, 8, -1.0, True), f"7 of 9 {WITH} 8 without it, and together somewhat less"),
        ((9, None, 8, -6.0, False), f"8 of 9 {WITHOUT} and together much less"),
    ],
)
def test_a_verdict_on_the_pile_is_words_and_counts(found, text):
    """A log-probability tells a reader nothing."""
    end = "the pile is used" if found[-1] else "the pile does not help, labels alone"
    assert pile_verdict(*found) == f"{text} probable with it: {end}"


def test_held_out_members_give_students_prediction_of_one_more():
    nearest = [1.0, 2.0, 4.0, 5.0, 9.0]
    distances = np.array([[z, z + 3] for z in nearest])
    near = members_held_out(distances)
    spread = np.std(nearest, ddof=1) * math.sqrt(1 + 1 / 5)
    assert near == pytest.approx((np.mean(nearest), spread, 4))
    assert members_held_out(distances[:1]) is None
    assert members_held_out(distances[:1].repeat(3, 0)) is None


@pytest.mark.parametrize("strangers", [0, 100])
def test_members_of_the_pile_are_found_without_labels(strangers):
    trial = replace(clusters(1, 60, strangers), refiner=refine.build("fitted_mask"))
    members = members_in_pile(trial)
    new = clusters(500, 0, 0, seed=7).support
    nearest = squared_distances(trial.space(new), trial.prototypes()).min(-1)
    farthest = stats.t(members.freedom, members.mean, members.spread).ppf(0.95)
    assert (nearest > farthest).mean() < 0.15
    assert members_in_pile(replace(trial, pile=trial.pile[:1])) is None


# By name in the estimator


def test_a_name_outside_the_package_is_not_imported():
    with pytest.raises(InputError, match="'antigravity:Refiner' is not part of semishot"):
        PrototypeClassifier("antigravity:Refiner").fit(randn(N, D), [0, 1, 2])
