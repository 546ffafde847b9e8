"""Scale, temperature and the use of unlabeled examples, recomputed with plain loops."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from semishot import refine
from semishot.estimator import scaling
from semishot.estimator.blocks import Space
from semishot.estimator.fitted import pile_verdict
from semishot.estimator.held_out import (
    Trial,
    judge,
    members_held_out,
    members_unlabeled,
    refine_with,
)
from semishot.estimator.scaling import (
    choose_space,
    held_out_distances,
    held_out_loss,
    temperature_of,
)
from semishot.prototypes import class_prototypes
from semishot.refine import fitted_mask
from support.tensors import randn

N, D = 3, 4


def one_hot(classes) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(classes), N).double()


def plain() -> Space:
    return Space("none", torch.zeros(D, dtype=torch.float64))


@pytest.mark.parametrize("classes", [[0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 2], [0] * 7 + [1, 1, 2]])
def test_held_out_examples_are_measured_without_themselves(classes):
    support = randn(len(classes), D)
    distances, found = held_out_distances(support, one_hot(classes), plain(), class_prototypes)
    folds = min(5, max(classes.count(c) for c in range(N)))
    rows = []
    for fold in range(folds):
        place = [classes[:i].count(c) for i, c in enumerate(classes)]
        out = [
            i for i, c in enumerate(classes) if place[i] % folds == fold and classes.count(c) > 1
        ]
        for i in out:
            row = []
            for c in range(N):
                rest = [support[k] for k in range(len(classes)) if classes[k] == c and k not in out]
                row.append(float((support[i] - sum(rest) / len(rest)).square().sum()))
            rows.append((row, classes[i]))
    assert torch.allclose(distances, torch.tensor([r for r, _ in rows], dtype=torch.float64))
    assert found.tolist() == [c for _, c in rows]


def test_one_example_per_class_leaves_nothing_to_hold_out():
    distances, classes = held_out_distances(
        randn(N, D), one_hot([0, 1, 2]), plain(), class_prototypes
    )
    assert distances.shape == (0, N)
    assert classes.shape == (0,)


def test_without_held_out_examples_the_temperature_is_a_share_of_the_distance_between_prototypes():
    prototypes = randn(N, D)
    pairs = [(a, b) for a in range(N) for b in range(N) if a != b]
    between = sum(float((prototypes[a] - prototypes[b]).square().sum()) for a, b in pairs)
    found = temperature_of(prototypes, torch.empty(0, N).double(), torch.empty(0).long())
    assert math.isclose(found, scaling.TEMPERATURE_SHARE * between / len(pairs))
    assert temperature_of(prototypes[:1], torch.empty(0, 1).double(), torch.empty(0).long()) == 1


def test_held_out_examples_move_the_temperature_to_the_best_compromise():
    prototypes, distances = randn(N, D), randn(20, N, seed=1).square() * 3
    classes = torch.arange(20) % N
    rule = temperature_of(prototypes, distances[:0], classes[:0])

    def cost(t):
        loss = 0.0
        for row, c in zip(distances.tolist(), classes.tolist(), strict=True):
            loss += row[c] / t + math.log(sum(math.exp(-d / t) for d in row))
        return loss + (math.log(t / rule) / scaling.LOG_SPREAD) ** 2 / 2

    found = temperature_of(prototypes, distances, classes)
    assert cost(found) <= min(cost(found * factor) for factor in (0.9, 0.95, 1.06, 1.1))
    assert found > rule  # these labels are noise: less certainty
    assert math.isclose(float(held_out_loss(distances, classes, 2.0)), cost(2.0) - prior(2.0, rule))


def prior(t, rule):
    return (math.log(t / rule) / scaling.LOG_SPREAD) ** 2 / 2


def test_lengths_are_kept_where_they_tell_classes_apart():
    """Three classes in one direction: only the length of a feature vector tells them apart."""
    classes = [0, 1, 2] * 4
    support = torch.tensor([1.0, 2.0, 3.0]).repeat(4)[:, None] * torch.ones(D)
    support = support.double() + 0.01 * randn(12, D)
    center = torch.nn.functional.normalize(support).mean(0)
    assert choose_space(support, one_hot(classes), center, "auto", None).normalization == "none"


@pytest.mark.parametrize(("features", "kind"), [(4, "none"), (64, "centered")])
def test_one_example_per_class_goes_by_the_number_of_features(features, kind):
    center = torch.zeros(features, dtype=torch.float64)
    found = choose_space(randn(N, features), one_hot([0, 1, 2]), center, "auto", None)
    assert found.normalization == kind


@pytest.mark.parametrize(("features", "kind"), [(4, "none"), (64, "centered")])
def test_a_class_of_one_example_beside_larger_ones_goes_by_the_number_of_features(features, kind):
    """The example cannot be held out: what suits the larger classes is no evidence for its class."""
    classes = [0] * 6 + [1] * 4 + [2]
    toward = 4 * torch.ones(features, dtype=torch.float64)  # all lie on one side of the origin
    support = toward + randn(N, features)[classes] + 0.5 * randn(len(classes), features, seed=1)
    center = torch.nn.functional.normalize(support).mean(0)
    found = choose_space(support, one_hot(classes), center, "auto", None)
    assert found.normalization == kind


def test_a_given_temperature_is_the_square_of_the_length():
    space = choose_space(randn(N, D), one_hot([0, 1, 2]), torch.zeros(D).double(), "unit", 0.25)
    assert (space.normalization, space.length) == ("unit", 0.5)


# Whether unlabeled examples help


def clusters(shot: int, members: int, strangers: int, seed: int = 0) -> Trial:
    """Three classes far apart, and a fourth cluster, as far, that is none of them."""
    centers = 6 * torch.eye(4, 16, dtype=torch.float64)
    rows = [centers[c].expand(n, 16) for c in range(3) for n in (shot,)]
    support = torch.cat(rows) + randn(3 * shot, 16, seed=seed)
    pile = torch.cat([centers[:3].repeat(members, 1), centers[3].expand(strangers, 16)])
    labels = one_hot([c for c in range(3) for _ in range(shot)])
    return Trial(support, labels, pile + randn(len(pile), 16, seed=seed + 1))


def here(trial: Trial) -> Space:
    return choose_space(trial.support, trial.labels, torch.zeros(16).double(), "none", None)


def test_a_pile_of_members_helps_and_the_words_say_so():
    trial = clusters(shot=2, members=20, strangers=0)
    found = judge(refine.build("fitted_mask"), 1, trial, here(trial))
    assert found.helps is True
    assert found.message.endswith("the pile is used")
    assert found.distances.shape == (6, 3)


def test_a_pile_that_misleads_is_left_out():
    """Soft k-means takes strangers for members of the class they are nearest to, and goes to them."""
    trial = clusters(shot=4, members=0, strangers=0)
    trial = trial._replace(support=trial.support / 2)  # the classes overlap
    beyond = 3 * trial.support[4:8].mean(0) + 2 * trial.support[:4].mean(0)
    trial = trial._replace(unlabeled=beyond + 0.5 * randn(300, 16, seed=3))
    found = judge(refine.build("soft_kmeans"), 3, trial, here(trial))
    alone = judge(None, 3, trial, here(trial))
    assert found.helps is False
    assert "the pile does not help" in found.message
    assert torch.equal(found.distances, alone.distances)


def test_nothing_to_tell_by_is_said():
    one, refiner = clusters(shot=1, members=5, strangers=0), refine.build("fitted_mask")
    assert "nothing tells whether the pile helps" in judge(refiner, 1, one, here(one)).message
    none = one._replace(unlabeled=one.unlabeled[:0])
    assert "no unlabeled examples" in judge(refiner, 1, none, here(none)).message
    assert "no refiner" in judge(None, 1, one, here(one)).message


WITH = "held-out labels right with the pile,"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((9, 8, 7, 0.4, True), f"8 of 9 {WITH} 7 without it, and together more"),
        ((9, 1, 1, -0.001, True), f"1 of 9 {WITH} 1 without it, and together equally"),
        ((9, 7, 8, -1.0, True), f"7 of 9 {WITH} 8 without it, and together somewhat less"),
        (
            (9, None, 8, -6.0, False),
            "8 of 9 held-out labels right without the pile, and together much less",
        ),
    ],
)
def test_a_verdict_on_the_pile_is_words_and_counts(found, said):
    """A log-probability tells a reader nothing."""
    end = "the pile is used" if found[-1] else "the pile does not help, labels alone"
    assert pile_verdict(*found) == f"{said} probable with it: {end}"


def test_held_out_members_give_students_prediction_of_one_more():
    nearest = [1.0, 2.0, 4.0, 5.0, 9.0]
    distances = torch.tensor([[z, z + 3] for z in nearest])
    near = members_held_out(distances)
    found = 1 - stats.t(near.freedom, near.mean, near.spread).sf([3.0, 12.0])
    mean, spread = np.mean(nearest), np.std(nearest, ddof=1) * math.sqrt(1 + 1 / 5)
    assert np.allclose(found, [stats.t(4, mean, spread).cdf(z) for z in (3.0, 12.0)])
    assert members_held_out(distances[:1]) is None
    assert members_held_out(distances[:1].repeat(3, 1)) is None


@pytest.mark.parametrize("strangers", [0, 100])
def test_members_of_the_pile_are_found_without_labels(strangers):
    trial = clusters(shot=1, members=60, strangers=strangers)
    space = here(trial)
    members = members_unlabeled(refine.build("fitted_mask"), 1, trial, space)
    prototypes = refine_with(refine.build("fitted_mask"), 1, space, trial.unlabeled)(
        trial.support, trial.labels
    )
    new = clusters(shot=500, members=0, strangers=0, seed=7).support
    nearest = torch.cdist(space(new), prototypes).square().amin(-1)
    farthest = stats.t(members.freedom, members.mean, members.spread).ppf(0.95)
    rejected = (nearest.numpy() > farthest).mean()
    assert rejected < 0.15
    assert members_unlabeled(None, 1, trial._replace(unlabeled=trial.unlabeled[:1]), space) is None


# The fitted mask: expectation-maximization in plain loops


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
    trial = clusters(shot=1, members=5, strangers=9)
    unlabeled = trial.unlabeled / 3
    prototypes = class_prototypes(trial.support / 3, trial.labels)
    module = refine.build("fitted_mask", mask_power=mask_power)
    d = [[float((u - p).square().sum()) for p in prototypes] for u in unlabeled]
    masks = literal_fit(d)
    for found, row, mask in zip(module(unlabeled, prototypes), d, masks, strict=True):
        total = sum(math.exp(-x) for x in row)
        expected = [math.exp(-x) / total * m**mask_power for x, m in zip(row, mask, strict=True)]
        assert found.tolist() == pytest.approx(expected, abs=1e-9)


def test_the_fitted_mask_tells_members_from_strangers():
    trial = clusters(shot=5, members=20, strangers=40)
    d = torch.cdist(trial.unlabeled, class_prototypes(trial.support, trial.labels)).square()
    member = fitted_mask.fit(d).member(d).amax(-1)
    assert member[:60].mean() > 0.9
    assert member[60:].mean() < 0.2


def test_bad_mask_power_is_named():
    with pytest.raises(ValueError, match="mask_power must be at least 1, not 0"):
        refine.build("fitted_mask", mask_power=0)
