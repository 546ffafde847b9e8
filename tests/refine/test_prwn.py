"""PRWN's walks, recomputed with plain loops, and what they do in a fleet."""

import math

import pytest
import torch

from semishot import refine
from semishot.data.episodes import EpisodeShape
from semishot.network.protonet import class_labels, support_labels
from semishot.prototypes import class_log_probs, class_prototypes, episode_loss
from semishot.refine.prwn import walk_loss
from semishot.training.config import Member, Recipe
from semishot.training.fleets import build_fleet
from support.tensors import randn

N, U, D = 3, 7, 4


def softmax(values):
    scores = [math.exp(v - max(values)) for v in values]
    return [score / sum(scores) for score in scores]


def literal_shares(a):
    """G_px and G_xp as they are printed, smoothed."""
    over_points = [softmax([a[j][c] for j in range(U)]) for c in range(N)]
    to_points = [[0.9 * over_points[c][j] + 0.1 / U for c in range(N)] for j in range(U)]
    to_classes = [[0.9 * share + 0.1 / N for share in softmax(a[j])] for j in range(U)]
    return to_points, to_classes


def literal_loss(a, between):
    to_points, to_classes = literal_shares(a)
    steps = []
    for i in range(U):
        row = softmax([between[i][j] for j in range(U) if j != i])
        steps.append([*row[:i], 0.0, *row[i:]])
    loss, back = 0.0, to_classes
    for t in range(4):
        for c in range(N):
            home = sum(to_points[j][c] * back[j][c] for j in range(U))
            loss -= 0.7**t * math.log(home) / N
        back = [
            [sum(steps[i][j] * back[j][c] for j in range(U)) for c in range(N)] for i in range(U)
        ]
    visits = [sum(to_points[j]) / N for j in range(U)]
    return loss - sum(map(math.log, visits)) / U


def similarities(unlabeled, prototypes):
    def between(some, others):
        return [
            [-sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) for b in others.tolist()]
            for a in some.tolist()
        ]

    return between(unlabeled, prototypes), between(unlabeled, unlabeled)


def test_the_loss_matches_literal_loops():
    unlabeled, prototypes = randn(U, D, seed=1), randn(N, D, seed=2)
    module = refine.build("prwn", weight=0.3)
    expected = 0.3 * literal_loss(*similarities(unlabeled, prototypes))
    assert module.extra_loss(unlabeled, prototypes).item() == pytest.approx(expected)


def test_at_test_the_half_that_walks_visit_most_is_shared_out():
    unlabeled, prototypes = randn(U, D, seed=1), randn(N, D, seed=2)
    module = refine.build("prwn")
    assert not module(unlabeled, prototypes).any()  # in training nothing is refined
    found = module.eval()(unlabeled, prototypes)
    a, _ = similarities(unlabeled, prototypes)
    to_points, to_classes = literal_shares(a)
    score = [sum(to_points[j][c] * to_classes[j][c] for c in range(N)) for j in range(U)]
    median = sorted(score)[U // 2]
    for j in range(U):
        expected = softmax(a[j]) if score[j] >= median else [0.0] * N
        assert found[j].tolist() == pytest.approx(expected)


def test_in_a_fleet_its_runs_alone_have_the_loss():
    shape = EpisodeShape(way=N, shot=2, query=2, unlabeled=3, distractors=1)
    members = [Member("soft_kmeans", 1), Member("prwn", 1), Member("prwn", 1, {"weight": 0.0})]
    fleet = build_fleet(members, Recipe(filters=4, init_std=0.3), 1).double().train()
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (1, shape.images, 1, 28, 28), generator=generator)
    losses = fleet(images.to(torch.uint8).expand(3, -1, -1, -1, -1), shape)
    support, unlabeled, query = fleet.embed(images.expand(3, -1, -1, -1, -1))[1].split(
        list(shape.sizes)
    )
    prototypes = class_prototypes(support, support_labels(shape, support))
    plain = episode_loss(class_log_probs(query, prototypes), class_labels(shape))
    assert losses[2].item() == pytest.approx(plain.item())
    a, between = (torch.tensor(s) for s in similarities(unlabeled, prototypes))
    walk = walk_loss(a, between).item()
    assert losses[1].item() == pytest.approx(plain.item() + 0.5 * walk)
    soft = build_fleet(members[:1], Recipe(filters=4, init_std=0.3), 1).double().train()
    alone = soft(images.to(torch.uint8), shape)
    assert losses[0].item() == pytest.approx(alone.item())
