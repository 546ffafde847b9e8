"""The CUDA path against the plain one: kernels, the captured update, and where it runs at all."""

import contextlib

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from semishot.data.episodes import EpisodeShape
from semishot.errors import InputError
from semishot.network.encoder import ConvEncoder, patch_moments
from semishot.training import loop
from semishot.training.chunks import images_on
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.fleet_table import row_of
from semishot.training.fleet_training import TrainingRequest, fleet_optimizer, training
from semishot.training.fleets import build_fleet
from semishot.training.update import Chunk, captured_chunk, plain_chunk
from semishot.training.validation import fixed_episodes

if not torch.cuda.is_available():
    pytest.skip(
        "the fused kernels and captured updates need a CUDA device", allow_module_level=True
    )

from semishot.network import fused

CUDA = torch.device("cuda")
RUNS, BATCH = 3, 10


def relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact.double()).norm() / exact.double().norm())


@pytest.mark.parametrize(("channels", "side", "filters"), [(1, 28, 64), (3, 84, 64), (1, 28, 16)])
def test_first_block_and_patch_moments_match_float64(channels, side, filters):
    images = torch.randint(0, 256, (RUNS, BATCH, channels, side, side), device=CUDA).byte()
    for found, exact in zip(
        fused.patch_moments(images), patch_moments(images.double() / 255), strict=True
    ):
        assert relative(found, exact) < 1e-4

    weight = torch.randn(RUNS, filters, channels, 3, 3, device=CUDA, requires_grad=True)
    shift = torch.randn(RUNS, filters, device=CUDA, requires_grad=True)
    out = fused.first_block(images, weight, shift)
    grad = torch.randn_like(out)
    out.backward(grad)
    exact_weight, exact_shift = (t.detach().double().requires_grad_() for t in (weight, shift))
    pixels = images.transpose(0, 1).flatten(1, 2).double() / 255
    plain = F.conv2d(
        pixels, exact_weight.flatten(0, 1), exact_shift.flatten(), padding=1, groups=RUNS
    )
    plain = F.relu(F.max_pool2d(plain, 2))
    plain.backward(grad.double())
    assert relative(out, plain) < 5e-3
    assert relative(weight.grad, exact_weight.grad) < 3e-2
    assert relative(shift.grad, exact_shift.grad) < 3e-2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("side", [14, 7, 3, 42, 21])
def test_norm_relu_pool_matches_float64(side, dtype):
    x = torch.randn(BATCH, RUNS * 64, side, side, device=CUDA).bfloat16()
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    scale, shift = (torch.randn(RUNS, 64, device=CUDA, requires_grad=True) for _ in range(2))
    mean, var = torch.zeros(RUNS, 64, device=CUDA), torch.ones(RUNS, 64, device=CUDA)
    out = fused.norm_relu_pool(x, scale, shift, mean, var, 1e-5, 0.1, dtype)
    assert out.dtype == dtype
    grad = torch.randn_like(out)
    out.backward(grad)
    exact = [t.detach().double().requires_grad_() for t in (x, scale, shift)]
    averages = (
        torch.zeros(RUNS * 64, device=CUDA).double(),
        torch.ones(RUNS * 64, device=CUDA).double(),
    )
    plain = F.batch_norm(
        exact[0], *averages, exact[1].flatten(), exact[2].flatten(), True, 0.1, 1e-5
    )
    plain = F.max_pool2d(F.relu(plain), 2)
    plain.backward(grad.double())
    assert relative(out, plain) < 5e-3
    assert relative(x.grad, exact[0].grad) < 5e-3
    assert relative(scale.grad, exact[1].grad) < 1e-4
    assert relative(shift.grad, exact[2].grad) < 1e-4
    assert relative(mean.flatten(), averages[0]) < 1e-5
    assert relative(var.flatten(), averages[1]) < 1e-5


def test_activations_that_kernels_cannot_count_are_refused():
    huge = torch.empty(1, device=CUDA, dtype=torch.bfloat16).expand(2**19, 64, 8, 8)
    scale = torch.ones(1, 64, device=CUDA)
    with pytest.raises(InputError, match="train fewer splits at a time"):
        fused.norm_relu_pool(huge, scale, scale, scale, scale, 1e-5, 0.1)


def test_fused_encoder_is_the_plain_one_in_bf16():
    encoder = ConvEncoder(1, 64, RUNS, init_std=0.1).to(CUDA)
    images = torch.randint(0, 256, (RUNS, 60, 1, 28, 28), device=CUDA).byte()
    plain = encoder(images)
    encoder.fused = True
    assert relative(encoder(images), plain) < 2e-2


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_a_replayed_graph_does_what_the_plain_loop_does(precision):
    shape = EpisodeShape(way=3, shot=1, query=1, unlabeled=2, distractors=1)
    members = tuple(Member(m, s) for m in ("soft_kmeans", "masked_soft_kmeans") for s in range(2))
    recipe = Recipe(filters=16, init_std=0.1)
    pool = torch.randint(0, 256, (50, 1, 28, 28), device=CUDA).byte()
    whole = Chunk(
        torch.randint(0, 50, (6, 4, shape.images)), None, [1e-3, 1e-3, 1e-3, 5e-4, 5e-4, 5e-4]
    )
    short = Chunk(whole.images[:4], None, whole.rates[:4])
    found = []
    for runner in (plain_chunk, captured_chunk):
        model = build_fleet(members, recipe, 1).to(CUDA).train()
        model.encoder.fused = precision == "bf16"
        optimizer = fleet_optimizer(recipe, model)
        extra = (whole,) if runner is captured_chunk else ()
        run = runner(model, optimizer, pool, shape, *extra)
        losses = [run(chunk)().clone() for chunk in (whole, short)]
        found.append((*losses, model.encoder.weights[2].detach().clone()))
    for plain, captured in zip(*found, strict=True):
        assert relative(captured, plain) < (5e-2 if precision == "bf16" else 1e-2)


def test_chunks_that_bring_their_images_train_as_from_a_pool_on_the_device():
    shape = EpisodeShape(way=3, shot=1, query=1, unlabeled=2, distractors=1)
    members = tuple(Member("masked_soft_kmeans", s) for s in range(3))
    recipe = Recipe(filters=16, init_std=0.1)
    pool = torch.randint(0, 256, (50, 1, 28, 28)).byte()
    places = [torch.randint(0, 50, (4, 3, shape.images)) for _ in range(5)]
    found = []
    for brought in (False, True):
        model = build_fleet(members, recipe, 1).to(CUDA).train()
        model.encoder.fused = True
        chunks = []
        for chosen in places:
            needed, within = chosen.unique(return_inverse=True)
            own = pool[needed].pin_memory() if brought else None
            chunks.append(Chunk(within if brought else chosen, None, [1e-3] * 4, own))
        resident = None if brought else pool.to(CUDA)
        run = captured_chunk(model, fleet_optimizer(recipe, model), resident, shape, chunks[0])
        losses = [run(chunk)().clone() for chunk in chunks]
        found.append((*losses, model.encoder.weights[2].detach().clone()))
    for held, sent in zip(*found, strict=True):
        assert relative(sent, held) < 1e-2


def test_looking_between_replays_changes_nothing(tiny_pool):
    """Validation reads the tensors that the graph writes, by other kernels and on another stream."""
    shape = EpisodeShape(way=3, shot=1, query=1, unlabeled=2, distractors=1)
    members = tuple(Member(m, s) for m in ("soft_kmeans", "masked_soft_kmeans") for s in range(2))
    recipe = Recipe(filters=16, init_std=0.1)
    config = FleetConfig("glyphs", tiny_pool.fingerprint, "none", recipe, shape, members)
    pool = torch.from_numpy(np.array(tiny_pool.images)).to(CUDA)
    chunk = Chunk(torch.randint(0, len(pool), (6, 4, shape.images)), None, [1e-3] * 6)
    episodes = fixed_episodes(config, tiny_pool, CUDA, 100)
    found = []
    for times in (0, 2):
        model = build_fleet(members, recipe, 1).to(CUDA).train()
        model.encoder.fused = True
        run = captured_chunk(model, fleet_optimizer(recipe, model), pool, shape, chunk)
        first = run(chunk)().clone()
        seen = [episodes.look(model) for _ in range(times)]
        assert all(each.accuracy == seen[0].accuracy for each in seen)
        assert model.training
        found.append((first, run(chunk)().clone(), model.encoder.weights[2].detach().clone()))
    for alone, watched in zip(*found, strict=True):
        assert relative(watched, alone) < 5e-2


def test_training_in_two_halves_leaves_the_bits_of_one_go(tiny_pool, tmp_path, monkeypatch):
    """cuDNN's algorithms are chosen anew, a graph is captured anew: both as before."""
    monkeypatch.setattr(loop, "CHUNK", 20)
    shape = EpisodeShape(way=3, shot=1, query=1, unlabeled=2, distractors=1)
    members = tuple(Member(m, s) for m in ("soft_kmeans", "masked_soft_kmeans") for s in range(2))
    recipe = Recipe(updates=100, filters=16, init_std=0.1)
    config = FleetConfig("glyphs", tiny_pool.fingerprint, "none", recipe, shape, members)
    images = images_on(tiny_pool, CUDA)

    def go_on(folder):
        request = TrainingRequest(config, tiny_pool, folder, CUDA, checkpoint_seconds=0.0)
        return training(request, images, row_of(config))

    for _ in go_on(tmp_path / "whole"):
        pass
    with contextlib.closing(go_on(tmp_path / "halves")) as half:
        for _ in range(3):
            next(half)
    assert (tmp_path / "halves" / "state.pt").exists()
    for _ in go_on(tmp_path / "halves"):
        pass
    for name in ("model.safetensors", "log.jsonl"):
        assert (tmp_path / "halves" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
