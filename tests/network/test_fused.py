"""The CUDA path against the plain one: kernels, the captured update, and where it runs at all."""

import contextlib
import gc
import weakref
from importlib import import_module

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from semishot.data.episodes import EpisodeShape
from semishot.errors import InputError
from semishot.network.classifier import CosineHead, TurnedClassifier
from semishot.network.encoder import ConvEncoder
from semishot.training import loop
from semishot.training.config import Classification, FleetConfig, Member, Recipe
from semishot.training.examples import images_on, sample_maps
from semishot.training.fleet_log import fixed_episodes, row_of
from semishot.training.fleets import build_fleet
from semishot.training.loop import TrainingRequest, build_optimizer, training
from semishot.training.update import Chunk, captured_chunk, plain_chunk

if not torch.cuda.is_available():
    pytest.skip(
        "the fused kernels and captured updates need a CUDA device", allow_module_level=True
    )

from semishot.network import fused
from semishot.network.fused import convolution

FIRST_BLOCK = [
    kernel
    for name, kernel in vars(import_module("semishot.network.fused.first_block")).items()
    if name.endswith("_kernel")
]
CUDA = torch.device("cuda")
RUNS, BATCH = 3, 10


def relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    found, exact = found.detach().double(), exact.detach().double()
    return float((found - exact).norm() / exact.norm())


@pytest.fixture(autouse=True)
def same_numbers_each_time():
    torch.manual_seed(0)


def plain_block(x, weight, scale, shift, averages, rounded=False):
    """Convolution, rounded to bf16 or not, batch norm, ReLU, max-pool."""
    runs = len(weight)
    x = F.conv2d(x, weight.flatten(0, 1), padding=1, groups=runs)
    if rounded:  # else another pixel may win
        x = x + (x.bfloat16() - x).detach()
    x = F.batch_norm(x, *averages, scale.flatten(), shift.flatten(), True, 0.1, 1e-5)
    return F.max_pool2d(F.relu(x), 2)


def exact_averages(filters):
    zeros = torch.zeros(RUNS * filters, device=CUDA).double()
    return zeros, zeros + 1


@pytest.mark.parametrize(("channels", "side", "filters"), [(1, 28, 64), (3, 84, 64), (1, 28, 16)])
def test_first_block_matches_float64(channels, side, filters):
    images = torch.randint(0, 256, (RUNS, BATCH, channels, side, side), device=CUDA).byte()
    weight = torch.randn(RUNS, filters, channels, 3, 3, device=CUDA, requires_grad=True)
    scale, shift = (torch.randn(RUNS, filters, device=CUDA, requires_grad=True) for _ in range(2))
    mean, var = torch.zeros(RUNS, filters, device=CUDA), torch.ones(RUNS, filters, device=CUDA)
    out = fused.first_block(images, weight, scale, shift, mean, var, 1e-5, 0.1)
    grad = torch.randn_like(out)
    out.backward(grad)
    exact = [t.detach().double().requires_grad_() for t in (weight, scale, shift)]
    averages = exact_averages(filters)
    plain = plain_block(images.transpose(0, 1).flatten(1, 2).double() / 255, *exact, averages)
    plain.backward(grad.double())
    assert relative(out, plain) < 5e-3
    for found, each in zip((weight, scale, shift), exact, strict=True):
        assert relative(found.grad, each.grad) < 3e-2
    assert relative(mean.flatten(), averages[0]) < 1e-4
    assert relative(var.flatten(), averages[1]) < 1e-4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("side", "filters"), [(14, 64), (7, 64), (3, 64), (42, 64), (21, 32)])
def test_block_matches_float64(side, filters, dtype):
    x = torch.randn(BATCH, RUNS * filters, side, side, device=CUDA).bfloat16()
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(RUNS, filters, filters, 3, 3, device=CUDA).bfloat16().float()
    weight.requires_grad_()
    scale, shift = (torch.randn(RUNS, filters, device=CUDA, requires_grad=True) for _ in range(2))
    mean, var = torch.zeros(RUNS, filters, device=CUDA), torch.ones(RUNS, filters, device=CUDA)
    out = fused.block(x, weight, scale, shift, mean, var, 1e-5, 0.1, dtype)
    assert out.dtype == dtype
    grad = torch.randn_like(out)
    out.backward(grad)
    exact = [t.detach().double().requires_grad_() for t in (x, weight, scale, shift)]
    averages = exact_averages(filters)
    plain_block(*exact, averages).backward(grad.double())
    for found, each in zip((x, weight, scale, shift), exact, strict=True):
        assert relative(found.grad, each.grad) < 7e-2  # another winner, another path
    assert (
        relative(mean.flatten(), averages[0]) < 5e-3
    )  # the outputs are rounded before they are summed
    assert relative(var.flatten(), averages[1]) < 1e-3


def test_convolutions_match_float64_whoever_computes_them(monkeypatch):
    """Ours, and cuDNN's beyond so many rows; both twice with the same bits."""
    x, grad = (
        torch.randn(BATCH, RUNS * 64, 9, 7, device=CUDA)
        .bfloat16()
        .contiguous(memory_format=torch.channels_last)
        for _ in range(2)
    )
    weight = torch.randn(RUNS, 64, 64, 3, 3, device=CUDA)
    packed = convolution.pack(weight)
    rounded = weight.bfloat16().flatten(0, 1)
    assert torch.equal(packed, rounded)
    exact = [t.detach().double().requires_grad_() for t in (x, rounded)]
    plain = F.conv2d(*exact, padding=1, groups=RUNS)
    plain.backward(grad.double())
    for ours in (True, False):
        if not ours:
            monkeypatch.setattr(convolution, "MOST_ROWS", 0)
            monkeypatch.setattr(convolution, "MOST_ROWS_OF_WEIGHT", 0)
            monkeypatch.setattr(convolution, "FEW_RUNS", 0)
        found = []
        for _ in range(2):
            out, sums = convolution.convolve(x, packed, RUNS)
            into = convolution.input_grad(grad, x, packed, RUNS)
            found.append((out, sums, into, convolution.weight_grad(grad, x, packed, RUNS)))
        assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))
        out, sums, into, weights = found[0]
        assert relative(out, plain) < 5e-3
        assert relative(sums.sum(0)[0], out.double().sum((0, 2, 3))) < 1e-4
        assert relative(sums.sum(0)[1], out.double().square().sum((0, 2, 3))) < 1e-5
        assert relative(into, exact[0].grad) < 5e-3
        assert relative(weights.flatten(0, 1), exact[1].grad) < 5e-3


def test_kernels_compiled_ahead_are_not_run_and_serve_later():
    images = torch.randint(0, 256, (RUNS, BATCH, 2, 28, 28), device=CUDA).byte()
    weight = torch.randn(RUNS, 16, 2, 3, 3, device=CUDA, requires_grad=True)
    scale, shift = torch.ones(RUNS, 16, device=CUDA), torch.zeros(RUNS, 16, device=CUDA)
    mean, var = torch.zeros(RUNS, 16, device=CUDA), torch.ones(RUNS, 16, device=CUDA)
    with fused.compiled_ahead():
        fused.first_block(images, weight, scale, shift, mean, var, 1e-5, 0.1).sum().backward()
    assert not mean.any()
    assert (var == 1).all()
    cached = [len(kernel.device_caches[0][0]) for kernel in FIRST_BLOCK]
    assert min(cached) > 0
    fused.first_block(images, weight, scale, shift, mean, var, 1e-5, 0.1).sum().backward()
    assert mean.any()
    assert [len(kernel.device_caches[0][0]) for kernel in FIRST_BLOCK] == cached


def test_one_kernel_adam_steps_as_pytorchs():
    sizes = ((5, 70, 64), (3,), (2, 33), (7, 64), (9,))
    start = [torch.randn(size, device=CUDA) for size in sizes]
    found = []
    for kind in (torch.optim.Adam, fused.OneKernelAdam, fused.OneKernelAdam):
        parameters = [torch.nn.Parameter(each.clone()) for each in start]
        groups = [
            {"params": parameters[:1], "weight_decay": 0.1},
            {"params": parameters[1:], "weight_decay": 0.0},
        ]
        rate = torch.tensor(0.01, device=CUDA)
        optimizer = kind(groups, lr=rate, fused=True, capturable=True)
        generator = torch.Generator(CUDA).manual_seed(1)
        for step in range(20):
            for parameter in parameters[:-1]:  # the last has no gradient
                size = parameter.numel()
                grads = torch.randn(size + 1, device=CUDA, generator=generator)
                parameter.grad = grads[step % 2 :][:size].view_as(parameter)  # aligned, and not
            optimizer.step()
        assert torch.equal(parameters[-1], start[-1])
        state = [optimizer.state[p] for p in parameters[:-1]]
        moments = [s[name] for s in state for name in ("exp_avg", "exp_avg_sq", "step")]
        found.append([*(p.detach() for p in parameters), *moments])
    for plain, one, two in zip(*found, strict=True):
        assert relative(one, plain) < 1e-4
        assert torch.equal(one, two)


def test_activations_that_kernels_cannot_count_are_refused():
    huge = torch.empty(1, device=CUDA, dtype=torch.bfloat16).expand(2**19, 64, 8, 8)
    weight, scale = torch.ones(1, 64, 64, 3, 3, device=CUDA), torch.ones(1, 64, device=CUDA)
    with pytest.raises(InputError, match="train fewer splits at a time"):
        fused.block(huge, weight, scale, scale, scale, scale, 1e-5, 0.1)


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
        optimizer = build_optimizer(recipe, model)
        extra = (whole,) if runner is captured_chunk else ()
        run = runner(model, optimizer, pool, shape, *extra)
        losses = [run(chunk)().clone() for chunk in (whole, short)]
        found.append((*losses, model.encoder.weights[2].detach().clone()))
    for plain, captured in zip(*found, strict=True):
        assert relative(captured, plain) < (5e-2 if precision == "bf16" else 1e-2)


def test_a_graph_holds_its_fleet():
    """Else others' tensors take the place of its buffers and settings, and a replay reads those."""
    shape = EpisodeShape(way=3, shot=1, query=1, unlabeled=2)
    chunk = Chunk(torch.randint(0, 50, (2, 1, shape.images)), None, [1e-3] * 2)
    pool = torch.randint(0, 256, (50, 1, 28, 28), device=CUDA).byte()
    recipe = Recipe(filters=16, init_std=0.1)
    model = build_fleet((Member("masked_soft_kmeans", 0),), recipe, 1).to(CUDA).train()
    model.encoder.fused = True
    run = captured_chunk(model, build_optimizer(recipe, model), pool, shape, chunk)
    held = weakref.ref(model)
    del model
    gc.collect()
    assert held() is not None
    assert run(chunk)().isfinite().all()
    del run
    gc.collect()
    assert held() is None


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
            chunks.append(Chunk(within if brought else chosen, None, [1e-3] * 4, pixels=own))
        resident = None if brought else pool.to(CUDA)
        run = captured_chunk(model, build_optimizer(recipe, model), resident, shape, chunks[0])
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
    episodes = fixed_episodes(config, tiny_pool, 100)
    found = []
    for times in (0, 2):
        model = build_fleet(members, recipe, 1).to(CUDA).train()
        model.encoder.fused = True
        run = captured_chunk(model, build_optimizer(recipe, model), pool, shape, chunk)
        first = run(chunk)().clone()
        seen = [episodes.accuracies(model) for _ in range(times)]
        assert all(each == seen[0] for each in seen)
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


def test_a_classifier_learns_in_a_replayed_graph_as_in_the_plain_loop():
    """SGD, labels and maps of each update."""
    recipe = Recipe(filters=16, optimizer="sgd", weight_decay=1e-3)
    pool = torch.randint(0, 256, (50, 3, 32, 32), device=CUDA).byte()
    size, rates = (6, RUNS, 4 * 5), [0.1, 0.1, 0.1, 0.05, 0.05, 0.05]
    maps = torch.from_numpy(sample_maps(1.0, 0, 0, (6 * RUNS, 4 * 5))).view(*size, 2, 3)
    labels = torch.randint(0, 7, size)
    whole = Chunk(torch.randint(0, 50, size), maps, rates, labels=labels)
    short = Chunk(whole.images[:4], maps[:4], rates[:4], labels=labels[:4])
    found = []
    for runner in (plain_chunk, captured_chunk):
        encoder = ConvEncoder(3, 16, RUNS, 0.0)
        heads = [CosineHead(16 * 4, n, range(RUNS), 10.0) for n in (7, 4)]
        model = TurnedClassifier(encoder, heads[0], heads[1], 0.5, 1.0).to(CUDA).train()
        model.encoder.fused = True
        optimizer = build_optimizer(recipe, model)
        extra = (None, whole) if runner is captured_chunk else ()
        run = runner(model, optimizer, pool, *extra)
        losses = [run(chunk)().clone() for chunk in (whole, short)]
        found.append((*losses, encoder.weights[2].detach().clone(), heads[0].log_scale.detach()))
    for plain, captured in zip(*found, strict=True):
        assert captured.isfinite().all()
        assert relative(captured, plain) < 5e-2


def test_episodes_on_a_sphere_learn_in_a_replayed_graph_as_in_the_plain_loop():
    """Half of them without distractors."""
    shape = EpisodeShape(way=3, shot=1, query=1, unlabeled=2, distractors=1)
    members = tuple(Member("cosine_kmeans", s) for s in range(3))
    recipe = Recipe(filters=16, init_std=0.1, sphere=10.0, initial_loss=0.5, norm_momentum=0.02)
    pool = torch.randint(0, 256, (50, 1, 28, 28), device=CUDA).byte()
    present = torch.randint(0, 2, (6, 3)).float()
    images = torch.randint(0, 50, (6, 3, shape.images))
    chunk = Chunk(images, None, [1e-3] * 6, distractors=present)
    found = []
    for runner in (plain_chunk, captured_chunk):
        model = build_fleet(members, recipe, 1, 16).to(CUDA).train()
        model.encoder.fused = True
        extra = (chunk,) if runner is captured_chunk else ()
        run = runner(model, build_optimizer(recipe, model), pool, shape, *extra)
        losses = run(chunk)().clone()
        parts = model.encoder.weights[2], model.sphere.center, model.refiner.slow_threshold
        found.append((losses, *(part.detach().clone() for part in parts)))
    for plain, captured in zip(*found, strict=True):
        assert relative(captured, plain) < 5e-2


@pytest.mark.parametrize("chunks", [2, 4, 6])
def test_two_stages_in_two_halves_leave_the_bits_of_one_go(
    tiny_pool, tmp_path, monkeypatch, chunks
):
    """Interrupted in the classification, and in the episodes."""
    monkeypatch.setattr(loop, "CHUNK", 20)
    shape = EpisodeShape(way=3, shot=1, query=1, unlabeled=2, distractors=1)
    members = tuple(Member("cosine_kmeans", s) for s in range(2))
    recipe = Recipe(
        updates=80, filters=16, init_std=0.0, sphere=10.0, initial_loss=0.5, with_distractors=0.5,
        turned=0.5, first=Classification(updates=80, batch=8),
    )  # fmt: skip
    config = FleetConfig("glyphs", tiny_pool.fingerprint, "none", recipe, shape, members)
    images = images_on(tiny_pool, CUDA)

    def go_on(folder):
        request = TrainingRequest(config, tiny_pool, folder, CUDA, checkpoint_seconds=0.0)
        return training(request, images, row_of(config))

    for _ in go_on(tmp_path / "whole"):
        pass
    with contextlib.closing(go_on(tmp_path / "halves")) as half:
        for _ in range(chunks):
            next(half)
    for _ in go_on(tmp_path / "halves"):
        pass
    for name in ("model.safetensors", "log.jsonl"):
        assert (tmp_path / "halves" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
