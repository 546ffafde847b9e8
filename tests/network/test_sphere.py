"""The sphere of embeddings, the cosine classifier and SGD, recomputed with plain loops."""

import math
from dataclasses import replace

import pytest
import torch

from semishot.data.episodes import EpisodeShape
from semishot.network.adam import NesterovSGD
from semishot.network.classifier import CosineHead, TurnedClassifier
from semishot.network.encoder import ConvEncoder
from semishot.network.protonet import take_run, warp
from semishot.network.sphere import MOMENTUM, Sphere
from semishot.prototypes import SHORTEST
from semishot.training.config import Member, Recipe
from semishot.training.fleets import build_fleet
from support.tensors import dot, randn

R, B, D, N = 2, 5, 4, 3
SHAPE = EpisodeShape(way=N, shot=2, query=2, unlabeled=3, distractors=2)
SPHERE = Recipe(filters=D, init_std=0.3, sphere=6.0, initial_loss=0.5, both_sides=True)


def length(a):
    return math.sqrt(dot(a, a) + SHORTEST)


def images(count: int, runs: int = R) -> torch.Tensor:
    generator = torch.Generator().manual_seed(4)
    shape = (runs, count, 1, 28, 28)
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


def fleet(recipe: Recipe = SPHERE):
    made = build_fleet([Member("cosine_kmeans", 1), Member("cosine_kmeans", 2)], recipe, 1, D)
    made.sphere.center.copy_(randn(R, D, seed=7) * 0.1)
    return made.double()


def test_eq2_on_the_sphere_is_a_softmax_of_cosines_times_the_scale():
    model, scale = fleet().eval(), 6.0
    points = randn(R, SHAPE.images, D, seed=3)
    found = model.refined_by(None).score(model.sphere.project(points), SHAPE)
    for run in range(R):
        support, _, query = points[run].split(list(SHAPE.sizes))
        unit = support / support.norm(dim=-1, keepdim=True)
        means = unit.view(N, SHAPE.shot, D).mean(1)
        for q, x in enumerate(query):
            scores = [scale * float(x @ p / (x.norm() * p.norm())) for p in means]
            total = math.log(sum(map(math.exp, scores)))
            expected = [score - total for score in scores]
            assert found[run, q].tolist() == pytest.approx(expected, abs=1e-4)


def test_the_center_follows_the_mean_in_training_alone():
    sphere, points = Sphere(R, D).double(), randn(R, B, D, seed=1)
    sphere(points)
    assert torch.allclose(sphere.center, MOMENTUM * points.mean(1))
    sphere.eval()(points)
    assert torch.allclose(sphere.center, MOMENTUM * points.mean(1))


@pytest.mark.parametrize("both_sides", [False, True])
def test_at_test_an_embedding_is_the_mean_over_views_of_the_image(both_sides):
    model = fleet(replace(SPHERE, augment=1.0, views=3, both_sides=both_sides)).eval()
    some = images(B)
    views = [some, *(warp(some, one.expand(R, B, 2, 3)) for one in model.moved)]
    views += [view.flip(-1) for view in views] if both_sides else []
    assert len({view.sum().item() for view in views[:3]}) == 3, "they differ"
    expected = sum(model.encoder(view) for view in views) / len(views)
    assert torch.allclose(model.encode(some), expected)
    for other in (model.refined_by(None), take_run(model, 0)):
        runs = other.encoder.runs
        assert torch.allclose(other.encode(some[:runs]).double(), expected[:runs], atol=1e-5)
    model.train()
    assert torch.equal(model.encode(some), model.encoder(some))


def test_the_loss_is_that_with_refined_prototypes_and_half_of_that_with_the_first():
    """Distractors take part in the first run, not in the second."""
    model, some = fleet().train(), images(SHAPE.images)
    found = model(some, SHAPE, torch.tensor([1.0, 0.0]))
    model = fleet().train()
    points = model.embed(some)
    truth = torch.arange(N).repeat_interleave(SHAPE.query)
    members = SHAPE.way * SHAPE.unlabeled
    for run in range(R):
        present = torch.ones(R, SHAPE.sizes[1])
        present[1, members:] = 0
        losses = [
            -scores[run].gather(-1, truth[:, None]).mean()
            for scores in (
                model.score(points, SHAPE, present),
                model.refined_by(None).score(points, SHAPE),
            )
        ]
        assert found[run].item() == pytest.approx((losses[0] + 0.5 * losses[1]).item())


@pytest.mark.parametrize(("turned", "rotation"), [(0.5, 1.0), (0.5, 0.0), (0.0, 0.0)])
def test_the_loss_of_a_cosine_classifier_matches_literal_loops(turned, rotation):
    copies = 4 if turned or rotation else 1
    encoder = ConvEncoder(1, D, R, 0.3).double().train()
    heads = [CosineHead(D, n, [3, 8], 10.0).double() for n in (N, 4)]
    model = TurnedClassifier(encoder, heads[0], heads[1] if rotation else None, turned, rotation)
    some, labels = images(2 * copies), torch.tensor([[0, 2], [1, 1]]).repeat(1, copies)
    found = model(some, labels)
    features = encoder(some).detach()

    def entropy(head, run, image, label):
        x, w = features[run, image].tolist(), head.weight[run].tolist()
        scores = [10 * dot(x, v) / (length(x) * length(v)) for v in w]
        return math.log(sum(map(math.exp, scores))) - scores[label]

    for run in range(R):
        of_class = [entropy(heads[0], run, i, labels[run, i]) for i in range(2 * copies)]
        expected = sum(of_class[:2]) / 2
        if copies > 1:
            expected += turned * sum(of_class[2:]) / 6
            turns = [entropy(heads[1], run, i, i // 2) for i in range(8)]
            expected += rotation * sum(turns) / 8
        assert found[run].item() == pytest.approx(expected, rel=1e-6)


def test_sgd_follows_nesterovs_momentum_with_l2_on_its_group():
    """v <- 0.9 v + g, w <- w - rate (g + 0.9 v), in plain numbers."""
    first, second = (torch.nn.Parameter(randn(3, seed=s)) for s in (1, 2))
    groups = [{"params": [first], "weight_decay": 0.1}, {"params": [second]}]
    optimizer = NesterovSGD(groups, lr=0.05)
    expected = [[list(first.tolist()), [0.0] * 3, 0.1], [list(second.tolist()), [0.0] * 3, 0.0]]
    for step in range(4):
        optimizer.zero_grad()
        ((step + 1) * first.square().sum() + second.sum()).backward()
        optimizer.step()
        for place, (w, v, decay) in enumerate(expected):
            for i in range(3):
                g = (2 * (step + 1) * w[i] if place == 0 else 1.0) + decay * w[i]
                v[i] = 0.9 * v[i] + g
                w[i] -= 0.05 * (g + 0.9 * v[i])
    assert first.tolist() == pytest.approx(expected[0][0])
    assert second.tolist() == pytest.approx(expected[1][0])
