"""The kernels of refinement and loss against the plain functions and autograd in float64.

Without a GPU they run in Triton's interpreter, if Triton is installed.
"""

import gc
import os
import weakref
from dataclasses import replace

import pytest
import torch

from semishot.data.episodes import EpisodeShape
from semishot.training.config import Member, Recipe
from semishot.training.fleets import build_fleet

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    pytest.importorskip("triton", "3.8", reason="the interpreter of Triton 3.8 is needed")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SMALL = EpisodeShape(way=3, shot=2, query=2, unlabeled=4, distractors=2)
TILES = EpisodeShape(way=5, shot=1, query=3, unlabeled=9, distractors=3)
SPHERE = {"sphere": 8.0, "initial_loss": 0.5}
PAPER = (
    ("soft_kmeans", {}),
    ("distractor_cluster", {}),
    ("masked_soft_kmeans", {}),
    ("soft_kmeans", {"detach_assignments": True}),
    ("distractor_cluster", {"two_r_squared": True}),
    ("masked_soft_kmeans", {"mask_power": 2}),
)
FITTED = (("fitted_mask", {}), ("fitted_mask", {"mask_power": 3}))
COSINES = (("cosine_kmeans", {}), ("cosine_kmeans", {"cluster": False, "scale": 4.0}))
SCORED = (
    ("distractor_cluster", {"score_distractors": True}),
    ("distractor_cluster", {"score_distractors": True, "two_r_squared": True}),
    ("soft_kmeans", {}),
)
WALKS = (("prwn", {}), ("prwn", {"weight": 2.0}))
OSLO = (("oslo", {}), ("oslo", {"steps": 3, "distractor_temperature": 0.5}))
SHAPES = (
    (EpisodeShape(way=5, shot=1, query=1, unlabeled=5, distractors=5), 1),
    (EpisodeShape(way=5, shot=5, query=5, unlabeled=5, distractors=5), 5),
    (EpisodeShape(way=30, shot=1, query=3, unlabeled=5, distractors=5), 5),
    (EpisodeShape(way=40, shot=1, query=1, unlabeled=5, distractors=5), 1),
)
"""And the side of the last maps."""
EVERYTHING = PAPER[:3] + FITTED[:1] + COSINES
CASES = {
    "the paper's": (PAPER, {}, SMALL),
    "fitted": (FITTED, {}, SMALL),
    "fitted beside others": (FITTED[:1] + PAPER[:3], {}, SMALL),
    "two steps": (PAPER, {"steps": 2}, SMALL),
    "three steps": (PAPER[2:3] + FITTED[:1] + COSINES[:1], {"steps": 3}, SMALL),
    "cosines": (COSINES, {}, SMALL),
    "sphere": (COSINES, SPHERE, SMALL),
    "sphere, in tiles": (COSINES, SPHERE, TILES),
    "sphere, two steps": (COSINES, SPHERE | {"steps": 2}, SMALL),
    "sphere, everything": (EVERYTHING, SPHERE, SMALL),
    "sphere, supervised": ((("supervised", {}),), {"sphere": 8.0}, SMALL),
    "supervised": ((("supervised", {}),), {}, SMALL),
    "initial loss": (PAPER, {"initial_loss": 0.3}, SMALL),
    "scored": (SCORED, {}, SMALL),
    "scored on a sphere": (SCORED, SPHERE, SMALL),
    "walks": (WALKS, {}, SMALL),
    "walks on a sphere, in tiles": (WALKS, SPHERE, TILES),
    "walks beside others": (WALKS + COSINES[:1], SPHERE, SMALL),
    "oslo": (OSLO, {}, SMALL),
    "oslo on a sphere, in tiles": (OSLO[:1], SPHERE, TILES),
    "oslo beside others": (COSINES[:1] + OSLO + WALKS[:1], SPHERE | {"steps": 2}, SMALL),
    "many filters": (COSINES, SPHERE | {"filters": 128}, SMALL),
}


def fleet_of(methods, places=1, **options):
    """Two runs of the first method and one of each other, with parameters of a trained fleet's size."""
    members = tuple(Member(m, s, o) for s, (m, o) in enumerate([methods[0], *methods]))
    recipe = Recipe(**({"filters": 16} | options))
    fleet = build_fleet(members, recipe, 1, recipe.filters * places).to(DEVICE).train()
    generator = torch.Generator().manual_seed(1)
    for name, parameter in fleet.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator).to(DEVICE)
        if name.startswith(("refiner", "sphere")):
            parameter.data += (0.03 if "slow" in name else 0.3) * noise
        if name.endswith("log_radius"):
            parameter.data.fill_(0.7)
    if fleet.sphere is not None:
        center = torch.rand(fleet.sphere.center.shape, generator=generator)
        fleet.sphere.center.copy_(center / 2)
    return fleet


def of_episode(fleet):
    """The parameters of refinement and loss."""
    named = fleet.named_parameters()
    return [p for name, p in named if name.startswith(("refiner", "sphere"))]


def results(fleet, losses, maps, weight):
    fleet.zero_grad()
    maps.grad = None
    (losses * weight).sum().backward()
    held = [] if fleet.sphere is None else [fleet.sphere.center.clone()]
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in of_episode(fleet)]
    return [losses.detach(), maps.grad, *held, *grads]


def compared(fleet, shape, distractors=None, side=1):
    """The kernels' results, after those of the plain functions in float64 were found to be the same."""
    runs = fleet.encoder.runs
    size = (shape.images, runs * fleet.encoder.filters, side, side)
    generator = torch.Generator().manual_seed(0)
    maps = torch.rand(size, generator=generator).to(DEVICE) * 4 / (size[1] / runs) ** 0.5 / side
    maps = maps.contiguous(memory_format=torch.channels_last).requires_grad_()
    weight = torch.rand(runs, generator=generator).to(DEVICE) + 0.5
    before = {name: value.clone() for name, value in fleet.state_dict().items()}
    found = []
    for _ in range(2 if DEVICE.type == "cuda" else 1):  # the same bits each time
        fleet.load_state_dict(before)
        losses = fleet.fused_losses(maps, shape, distractors)
        assert losses is not None
        found.append(results(fleet, losses, maps, weight))
    assert all(torch.equal(a, b) for a, b in zip(found[0], found[-1], strict=True))
    fleet.load_state_dict(before)
    exact, rows = fleet.double(), maps.detach().double().requires_grad_()
    embeddings = exact.encoder.flattened(rows)
    embeddings = embeddings if exact.sphere is None else exact.sphere(embeddings)
    present = None if distractors is None else distractors.double()
    plain = exact.losses(embeddings, shape, present)
    for one, other in zip(found[0], results(exact, plain, rows, weight.double()), strict=True):
        assert (one.double() - other).norm() <= 1e-4 * other.norm() + 1e-7
    return found[0]


@pytest.mark.parametrize("case", CASES)
def test_losses_and_gradients_match_float64(case):
    methods, options, shape = CASES[case]
    compared(fleet_of(methods, **options), shape)


@pytest.mark.parametrize("methods", [COSINES, OSLO[1:], EVERYTHING], ids=len)
def test_distractors_take_part_in_some_episodes(methods):
    fleet = fleet_of(methods, **SPHERE)
    there = torch.arange(fleet.encoder.runs, device=DEVICE) % 2
    compared(fleet, SMALL, there.float())


def test_many_places_are_many_features():
    fleet = fleet_of(COSINES + PAPER[:3], initial_loss=0.5)
    compared(fleet, replace(SMALL, unlabeled=3), side=3)
    compared(fleet_of(COSINES, places=9, **SPHERE), SMALL, side=3)


def test_without_unlabeled_images_refiners_learn_nothing():
    fleet, shape = fleet_of(PAPER[:3]), replace(SMALL, unlabeled=0, distractors=0)
    compared(fleet, shape)
    maps = torch.rand(shape.images, fleet.encoder.runs * 16, 1, 1, device=DEVICE)
    fleet.zero_grad()
    fleet.fused_losses(maps.float().requires_grad_(), shape).sum().backward()
    assert all(parameter.grad is None for parameter in of_episode(fleet))


BEYOND = {
    "a method without kernels": ((("label_propagation", {}),), {}, SMALL),
    "half a mask": ((("fitted_mask", {"mask_power": 1.5}),), {}, SMALL),
    "two steps of N + 1 scores": (SCORED, {"steps": 2}, SMALL),
    "masks over more than 256": (PAPER[2:3], {}, replace(SMALL, unlabeled=60)),
    "more than 64 classes": (PAPER[:1], {}, replace(SMALL, way=65, distractors=0)),
    "more than 1,024 images": (PAPER[:1], {}, replace(SMALL, unlabeled=210)),
    "tables beyond 32 bits": (PAPER[:1], {"steps": 2**20}, SMALL),
}


@pytest.mark.parametrize("case", BEYOND)
def test_what_is_beyond_the_kernels_is_left_to_the_plain_functions(case):
    methods, options, shape = BEYOND[case]
    fleet = fleet_of(methods, **options)
    maps = torch.zeros(shape.images, fleet.encoder.runs * 16, 1, 1, device=DEVICE)
    assert fleet.fused_losses(maps, shape) is None


def test_gradients_are_computed_once():
    fleet = fleet_of(PAPER[2:3])
    maps = torch.rand(SMALL.images, fleet.encoder.runs * 16, 1, 1, device=DEVICE).requires_grad_()
    losses = fleet.fused_losses(maps, SMALL)
    losses.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="only once"):
        losses.sum().backward()


@pytest.mark.parametrize(("shape", "side"), SHAPES)
@pytest.mark.parametrize("methods", [PAPER, PAPER[2:3], (("supervised", {}),)], ids=len)
def test_episodes_of_the_paper_and_of_presets(shape, side, methods):
    if methods[0][0] == "supervised":
        shape = replace(shape, unlabeled=0, distractors=0)
    compared(fleet_of(methods, filters=64), shape, side=side)


def test_nothing_of_an_update_outlives_its_losses():
    fleet = fleet_of(OSLO[:1] + WALKS[:1])
    maps = torch.rand(SMALL.images, fleet.encoder.runs * 16, 1, 1, device=DEVICE).requires_grad_()
    gc.disable()  # what a cycle holds would stay
    try:
        losses = fleet.fused_losses(maps, SMALL)
        work = weakref.ref(losses.grad_fn.work)
        losses.sum().backward()
        del losses
        assert work() is None
    finally:
        gc.enable()
