"""Eqs. 4-9, recomputed with plain loops, their limits, and the contract of every refiner."""

import math
import statistics as plain

import pytest
import torch

from semishot import refine
from semishot.errors import InputError
from semishot.prototypes import class_prototypes
from semishot.refine import distractor_cluster, masked_soft_kmeans, soft_kmeans
from support.tensors import episode, randn

N, S, R, D = 3, 6, 7, 4


def build(name: str, runs: int | None = None, **options) -> torch.nn.Module:
    """A refiner in float64 whose parameters are not at their starting point."""
    module = refine.build(name, runs=runs, **options).double()
    for number, parameter in enumerate(module.parameters()):
        parameter.data += 0.3 * randn(*parameter.shape, seed=10 + number)
    if name == "distractor_cluster":
        module.log_radius.data = randn(*module.log_radius.shape, seed=3) * 0.3 + 0.7
    return module


def literal_distances(u, p):
    return [
        [sum((float(u[j, d]) - float(p[c, d])) ** 2 for d in range(D)) for c in range(N)]
        for j in range(R)
    ]


def literal_soft_assignments(d):
    rows = []
    for row in d:
        scores = [math.exp(-value) for value in row]
        rows.append([score / sum(scores) for score in scores])
    return rows


def literal_prototypes(support, labels, u, w):
    """Eqs. 4 and 9: the sums as they are printed."""
    out = []
    for c in range(N):
        top = [0.0] * D
        bottom = 0.0
        for i in range(S):
            bottom += float(labels[i, c])
            top = [t + float(labels[i, c] * support[i, d]) for d, t in enumerate(top)]
        for j in range(R):
            bottom += w[j][c]
            top = [t + w[j][c] * float(u[j, d]) for d, t in enumerate(top)]
        out.append([t / bottom for t in top])
    return torch.tensor(out, dtype=torch.float64)


def check_refined(module, weights_of):
    support, labels, u = episode()
    p = class_prototypes(support, labels)
    literal = weights_of(u, p)
    assert torch.allclose(module(u, p), torch.tensor(literal, dtype=torch.float64), atol=1e-12)
    found = refine.refined_prototypes(module, support, labels, u)
    assert torch.allclose(found, literal_prototypes(support, labels, u, literal), atol=1e-12)


def test_eq4_matches_literal_loops():
    check_refined(
        build("soft_kmeans"), lambda u, p: literal_soft_assignments(literal_distances(u, p))
    )


@pytest.mark.parametrize("two_r_squared", [False, True])
def test_eqs_5_and_6_match_literal_loops(two_r_squared):
    module = build("distractor_cluster", two_r_squared=two_r_squared)
    r, scale = math.exp(module.log_radius.item()), 2 if two_r_squared else 1

    def normalizer(radius):
        return 0.5 * math.log(2 * math.pi) + math.log(radius)

    def weights(u, p):
        rows = []
        for j, row in enumerate(literal_distances(u, p)):
            origin = sum(float(x) ** 2 for x in u[j])
            scores = [math.exp(-d / scale - normalizer(1.0)) for d in row]
            scores.append(math.exp(-origin / (scale * r**2) - normalizer(r)))
            rows.append([score / sum(scores) for score in scores[:N]])
        return rows

    check_refined(module, weights)


def literal_masks(module, d):
    """Eqs. 7-9 for distances d (R x N), with the statistics spelled out."""
    w1, b1, w2, b2 = (p.tolist() for p in module.parameters())
    masks = [[0.0] * N for _ in range(R)]
    for c in range(N):
        column = [d[j][c] for j in range(R)]
        mean = sum(column) / R
        t = [x / mean for x in column]
        v = plain.pvariance(t)
        m = plain.fmean(t)
        skew = sum((x - m) ** 3 for x in t) / R / v**1.5
        kurtosis = sum((x - m) ** 4 for x in t) / R / v**2 - 3
        features = [min(t), max(t), v, skew, kurtosis]
        hidden = [
            math.tanh(sum(f * w1[i][k] for i, f in enumerate(features)) + b1[0][k])
            for k in range(masked_soft_kmeans.HIDDEN)
        ]
        out = [sum(h * w2[k][o] for k, h in enumerate(hidden)) + b2[0][o] for o in range(2)]
        beta, gamma = math.exp(out[0]), math.exp(out[1])
        for j in range(R):
            masks[j][c] = 1 / (1 + math.exp(gamma * (t[j] - beta)))
    return masks


@pytest.mark.parametrize("mask_power", [1, 2])
def test_eqs_7_to_9_match_literal_loops(mask_power):
    module = build("masked_soft_kmeans", mask_power=mask_power)

    def weights(u, p):
        d = literal_distances(u, p)
        masks, z = literal_masks(module, d), literal_soft_assignments(d)
        return [[z[j][c] * masks[j][c] ** mask_power for c in range(N)] for j in range(R)]

    check_refined(module, weights)


def test_several_steps_repeat_the_whole_refinement():
    support, labels, u = episode()
    module = build("masked_soft_kmeans")
    p = class_prototypes(support, labels)
    for _ in range(3):
        p = literal_prototypes(support, labels, u, module(u, p).tolist())
    assert torch.allclose(refine.refined_prototypes(module, support, labels, u, steps=3), p)


def test_a_method_that_asks_for_it_is_told_the_step():
    class Growing(torch.nn.Module):
        """All unlabeled examples go to the first class, each with weight 1 + step."""

        needs_step = True

        def forward(self, unlabeled, prototypes, step):
            return (1.0 + step) * torch.eye(N)[0].double().expand(*unlabeled.shape[:-1], N)

    support, labels, u = episode()
    found = refine.refined_prototypes(Growing(), support, labels, u, steps=3)
    beside = refine.SideBySide([Growing(), refine.build("soft_kmeans")], [1, 1])
    of_two = refine.refined_prototypes(
        beside, *(t.expand(2, *t.shape) for t in (support, labels, u)), 3
    )
    own = support[:2]  # of the first class
    expected = (own.sum(0) + 3 * u.sum(0)) / (2 + 3 * len(u))
    assert torch.allclose(found[0], expected)
    assert torch.allclose(of_two[0, 0], expected)


def test_authors_scoring_is_over_n_plus_one_clusters_with_a_refined_last_one():
    support, labels, u = episode()
    module = build("distractor_cluster", score_distractors=True, two_r_squared=True)
    p = refine.refined_prototypes(module, support, labels, u)
    r = math.exp(module.log_radius.item())
    queries = randn(5, D, seed=4)

    initial = class_prototypes(support, labels)  # the last cluster moves in step with the others

    def log_scores(x, centers, last):
        to_classes = [-(x - centers[c]).square().sum() / 2 for c in range(N)]
        return torch.stack([*to_classes, -(x - last).square().sum() / (2 * r**2) - math.log(r)])

    shares = [log_scores(x, initial, torch.zeros(D)).softmax(0)[-1] for x in u]
    last = sum(s * x for s, x in zip(shares, u, strict=True)) / sum(shares)
    expected = torch.stack([log_scores(q, p, last).log_softmax(0) for q in queries])
    found = refine.query_log_probs(module, queries, p, u, support, labels)
    assert found.shape == (5, N + 1)
    assert torch.allclose(found, expected)


# Gradients


@pytest.mark.parametrize("name", sorted({*refine.names()} - {"fitted_mask", "prwn"}))
def test_gradients_match_finite_differences(name, monkeypatch):
    support, labels, u = episode()
    module = build(name)
    parameters = list(module.parameters())
    if (
        name == "masked_soft_kmeans"
    ):  # threshold and slope have no gradient to distances (footnote 2)
        frozen, parameters = (torch.tensor(1.1), torch.tensor(2.0)), []
        monkeypatch.setattr(module, "threshold_and_slope", lambda _: frozen)

    def refined(support, u, *_):
        return refine.refined_prototypes(module, support, labels, u)

    assert torch.autograd.gradcheck(
        refined, [support.requires_grad_(), u.requires_grad_(), *parameters]
    )


def test_eq8_statistics_carry_no_gradient_but_the_mlp_learns():
    d = randn(R, N).abs().requires_grad_()
    assert not masked_soft_kmeans.statistics(d).requires_grad
    module = build("masked_soft_kmeans")
    support, labels, u = episode()
    refine.refined_prototypes(module, support, labels, u).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in module.parameters())


def test_detached_assignments_leave_only_the_averaged_embeddings_differentiable():
    support, labels, u = episode()
    free, cut = soft_kmeans.Refiner(), soft_kmeans.Refiner(detach_assignments=True)
    p = class_prototypes(support, labels)
    assert torch.equal(free(u, p), cut(u, p))
    u.requires_grad_()
    assert free(u, p).requires_grad
    assert not cut(u, p).requires_grad


# Limits


def test_infinite_radius_gives_eq4():
    support, labels, u = episode()
    module = build("distractor_cluster")
    module.log_radius.data.fill_(math.log(1e100))
    found = refine.refined_prototypes(module, support, labels, u)
    assert torch.allclose(
        found, refine.refined_prototypes(refine.build("soft_kmeans"), support, labels, u)
    )


@pytest.mark.parametrize(("beta", "limit"), [(1e9, "soft_kmeans"), (-1e9, None)])
def test_threshold_limits_give_eq4_and_eq1(monkeypatch, beta, limit):
    support, labels, u = episode()
    module = build("masked_soft_kmeans")
    constant = torch.tensor(beta, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)
    monkeypatch.setattr(module, "threshold_and_slope", lambda _: constant)
    other = limit and refine.build(limit)
    assert torch.allclose(
        refine.refined_prototypes(module, support, labels, u),
        refine.refined_prototypes(other, support, labels, u),
    )


# The contract: every file in refine/


@pytest.fixture(params=refine.names())
def name(request):
    return request.param


def test_contract_shapes_with_any_leading_axes(name):
    module = build(name)
    for lead in [(), (2,), (2, 5)]:
        support, labels, u = episode(*lead)
        weights = refine.weights_of(module, u, class_prototypes(support, labels), support, labels)
        assert weights.shape == (*lead, R, N)
        assert (weights >= 0).all()
        assert (weights.sum(-1) <= 1 + 1e-9).all()


@pytest.mark.parametrize("lead", [(), (5,)])
def test_contract_a_fleet_of_runs_equals_single_refiners(name, lead):
    fleet = build(name, runs=2)
    support, labels, u = episode(2, *lead)
    p = class_prototypes(support, labels)
    together = refine.weights_of(fleet, u, p, support, labels)
    for run in range(2):
        single = build(name)
        for parameter, stacked in zip(single.parameters(), fleet.parameters(), strict=True):
            parameter.data = stacked.data[run].clone()
        alone = refine.weights_of(single, u[run], p[run], support[run], labels[run])
        assert torch.allclose(together[run], alone, atol=1e-12)


@pytest.mark.parametrize("lead", [(), (2,), (2, 5)])
def test_contract_no_unlabeled_image_gives_no_weights_and_eq1(name, lead):
    support, labels, u = episode(*lead)
    module = build(name, runs=lead[0] if lead else None)
    p = class_prototypes(support, labels)
    weights = refine.weights_of(module, u[..., :0, :], p, support, labels)
    assert weights.shape == (*lead, 0, N)
    assert torch.equal(refine.refined_prototypes(module, support, labels, u[..., :0, :]), p)
    assert weights.dtype == u.dtype


@pytest.mark.parametrize("case", ["one", "identical", "zero distance", "far", "nearly identical"])
def test_contract_degenerate_inputs_are_finite_in_value_and_gradient(name, case):
    support, labels, u = (x.float() for x in episode())
    if case == "identical":
        support = u[:1].expand(S, D).clone()
    u = {
        "one": u[:1],
        "identical": u[:1].expand(R, D),
        "zero distance": class_prototypes(support, labels)[:1].expand(R, D),
        "far": u * 1e6,
        "nearly identical": u[:1] + 1e-7 * u,
    }[case].clone()
    module = build(name).float()
    inputs = [support.requires_grad_(), u.requires_grad_(), *module.parameters()]
    refined = refine.refined_prototypes(module, support, labels, u, steps=2)
    refined.sum().backward()
    assert torch.isfinite(refined).all()
    assert all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in inputs)


def test_contract_order_of_unlabeled_images_is_irrelevant(name):
    support, labels, u = episode()
    module = build(name)
    found = refine.refined_prototypes(module, support, labels, u)
    shuffled = refine.refined_prototypes(
        module, support, labels, u[torch.tensor([3, 1, 0, 6, 5, 2, 4])]
    )
    assert torch.allclose(found, shuffled)


def test_contract_relabeling_classes_permutes_prototypes(name):
    support, labels, u = episode()
    module, permutation = build(name), torch.tensor([2, 0, 1])
    found = refine.refined_prototypes(module, support, labels[:, permutation], u)
    assert torch.allclose(found, refine.refined_prototypes(module, support, labels, u)[permutation])


# Names


@pytest.mark.parametrize("unlabeled", [R, 0])
def test_side_by_side_gives_each_method_its_runs_and_its_labeled_examples(unlabeled):
    counts = [2, 1, 3, 1, 2]
    names = ["soft_kmeans", "distractor_cluster", "oslo", "masked_soft_kmeans", "label_propagation"]
    parts = [build(n, runs=c) for n, c in zip(names, counts, strict=True)]
    support, labels, u = episode(9)
    u, p = u[:, :unlabeled], class_prototypes(support, labels)
    beside = refine.SideBySide(parts, counts)
    together = refine.weights_of(beside, u, p, support, labels)
    assert together.shape == (9, unlabeled, N)
    first = 0
    for part, count in zip(parts, counts, strict=True):
        own = slice(first, first + count)
        alone = refine.weights_of(part, u[own], p[own], support[own], labels[own])
        assert torch.equal(together[own], alone)
        first += count


def test_side_by_side_pads_the_scores_of_methods_without_a_distractor_class():
    support, labels, u = episode(2)
    parts = [
        build("soft_kmeans", runs=1),
        build("distractor_cluster", runs=1, score_distractors=True),
    ]
    p = class_prototypes(support, labels)
    scores = refine.query_log_probs(
        refine.SideBySide(parts, [1, 1]), support, p, u, support, labels
    )
    assert scores.shape == (2, S, N + 1)
    assert torch.isneginf(scores[0, :, -1]).all()
    assert torch.isfinite(scores[1]).all()


# Names and options


def test_names_are_the_files_or_the_authors_and_an_unknown_one_lists_the_choices():
    assert isinstance(refine.build("kmeans-refine"), soft_kmeans.Refiner)
    assert isinstance(refine.build("kmeans-refine-radius"), distractor_cluster.Refiner)
    assert isinstance(refine.build("kmeans-refine-mask"), masked_soft_kmeans.Refiner)
    with pytest.raises(InputError, match=r"choose from .*soft_kmeans.*did you mean 'soft_kmeans'"):
        refine.build("soft_kmean")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("soft_kmeans", {"nonsense": 1}, "does not take these options.*nonsense"),
        ("masked_soft_kmeans", {"mask_power": 3}, "mask_power must be 1"),
        ("fitted_mask", {"mask_power": 0}, "mask_power must be at least 1, not 0"),
        ("distractor_cluster", {"radius": 0.0}, "radius must be positive"),
        ("prwn", {"weight": -1}, "prwn: weight must be at least 0, not -1"),
        ("oslo", {"steps": 2.5}, "oslo: steps must be from 1 to 100, not 2.5"),
        ("oslo", {"class_temperature": 0.0}, "temperatures must be positive, not 0.05 and 0.0"),
        ("label_propagation", {"neighbors": 1.5}, "neighbors must be at least 1, not 1.5"),
        ("label_propagation", {"spread": 1.0}, "spread must be above 0 and at most 0.99, not 1.0"),
        ("cosine_kmeans", {"scale": 0.0}, "the scale must be positive, not 0.0"),
        ("cosine_kmeans", {"threshold": 1.5}, "the threshold must be from -1 to 1, not 1.5"),
    ],
)
def test_wrong_options_are_named(name, options, message):
    with pytest.raises(InputError, match=message):
        refine.build(name, **options)
