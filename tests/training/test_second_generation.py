"""Both stages of preset two-stage do what the experiment did that chose them, on the images it drew."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImageClass, ImagePool, save_pool
from semishot.network.classifier import CosineHead, TurnedClassifier
from semishot.network.encoder import BLOCKS, ConvEncoder
from semishot.prototypes import unit_length
from semishot.refine import build
from semishot.training.augment import compose, crops, quarter_turns
from semishot.training.config import Member, Recipe, learning_rate
from semishot.training.fleet_training import fleet_optimizer
from semishot.training.fleets import build_fleet
from semishot.training.loop import build_optimizer
from semishot.training.update import set_learning_rate, update

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "experiments"), str(ROOT / "benchmarks")]
experiment, at_test = (import_module(f"second_generation.{n}") for n in ("train", "at_test"))
CLASSES, IMAGES, FILTERS, STEPS, BATCH, SPLITS = 9, 20, 3, 4, 8, (2, 0)
DECAY, RATE = 0.05, 0.02
SHAPE = EpisodeShape(way=3, shot=2, query=4, unlabeled=3, distractors=2)


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def pool(tmp_path) -> ImagePool:
    classes = [ImageClass(f"c{i}", "all", "train", IMAGES * i, IMAGES) for i in range(CLASSES)]
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (IMAGES * CLASSES, 3, 16, 16), dtype=np.uint8)
    save_pool(tmp_path / "pool", "mini-imagenet", images, classes, {})
    return ImagePool("mini-imagenet", images, tuple(classes))


class Drawn:
    """What the experiment drew: images of the pool, uniforms, maps and moved images of each update."""

    def __init__(self, pool: ImagePool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.updates: list[tuple[np.ndarray, torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self.place = {image.tobytes(): i for i, image in enumerate(pool.images)}
        warp, make_crops = experiment.warp, experiment.crops

        def kept_uniforms(low, shape, draws):
            self.uniforms = draws
            return make_crops(low, shape, draws)

        def kept(images, maps, color):
            moved = warp(images, maps.float(), color)
            rows = [[self.place[i.tobytes()] for i in run] for run in images.numpy()]
            self.updates.append((np.array(rows), self.uniforms, maps, moved))
            return moved

        small = {"TRAIN_CLASSES": CLASSES, "IMAGES": IMAGES, "FILTERS": FILTERS, "DIM": FILTERS}
        small |= {
            "DEVICE": torch.device("cpu"),
            "CUDA": False,
            "warp": kept,
            "crops": kept_uniforms,
        }
        small |= {"TURNS": experiment.TURNS.double()}
        for name, value in small.items():
            monkeypatch.setattr(experiment, name, value)


@pytest.fixture
def drawn(pool, monkeypatch) -> Drawn:
    torch.manual_seed(5)
    return Drawn(pool, monkeypatch)


def first_stage(tmp_path) -> tuple[dict, dict]:
    """The experiment's runs before and after stage 1."""
    runs = [{"id": f"a/{s}", "split": s, "turned": 0.5, "decay": DECAY, "lr": RATE} for s in SPLITS]
    job = {"runs": runs, "labeled": BATCH, "steps": STEPS}
    fleet = experiment.Fleet(1, len(SPLITS), len(SPLITS))
    fleet.begin(list(SPLITS))
    before, after = {}, {}
    experiment.keep(job, fleet, before, fleet.flat.detach())
    experiment.stage1(job, experiment.Data(tmp_path / "pool"), after, {})
    return before, after


def put(encoder: ConvEncoder, states: list[dict]) -> None:
    with torch.no_grad():
        for block in range(BLOCKS):
            for ours, name in zip(encoder.parameters_of(block), ("w", "g", "b"), strict=True):
                ours.copy_(torch.stack([state[f"{name}{block}"] for state in states]))
            for place, ours in enumerate(encoder.moving_averages(block)):
                ours.copy_(torch.stack([state["buffers"][2 * block + place] for state in states]))


def same(encoder: ConvEncoder, states: list[dict], rtol: float = 1e-8, atol: float = 1e-10) -> None:
    for block in range(BLOCKS):
        for ours, name in zip(encoder.parameters_of(block), ("w", "g", "b"), strict=True):
            theirs = torch.stack([state[f"{name}{block}"] for state in states])
            assert torch.allclose(ours, theirs, rtol, atol), (name, (ours - theirs).abs().max())
        for place, ours in enumerate(encoder.moving_averages(block)):
            theirs = torch.stack([state["buffers"][2 * block + place] for state in states])
            assert torch.allclose(ours, theirs, rtol, atol)


def test_stage_1_is_the_experiments(tmp_path, drawn):
    before, after = (list(states.values()) for states in first_stage(tmp_path))
    after = after[: len(SPLITS)]  # the others are averages
    recipe = Recipe(STEPS, RATE, cosine=True, weight_decay=DECAY, filters=FILTERS, optimizer="sgd")
    encoder = ConvEncoder(3, FILTERS, len(SPLITS), 0.0)
    heads = [CosineHead(FILTERS, n, SPLITS, 10.0) for n in (CLASSES, 4)]
    model = TurnedClassifier(encoder, heads[0], heads[1], turned=0.5, rotation=1.0).train()
    put(encoder, before)
    for head, name in zip(heads, ("head", "rotation"), strict=True):
        head.weight.data = torch.stack([state[name] for state in before])
    optimizer = build_optimizer(recipe, encoder, model, captured=False)
    for step, (rows, _, _, moved) in enumerate(drawn.updates):
        set_learning_rate(optimizer, learning_rate(recipe, step))
        update(model, optimizer, moved, None, (torch.from_numpy(rows // IMAGES),))
    assert len(drawn.updates) == STEPS
    same(encoder, after)
    for place, (head, name) in enumerate(zip(heads, ("head", "rotation"), strict=True)):
        theirs = torch.stack([state[name] for state in after])
        assert torch.allclose(head.weight, theirs, rtol=1e-8, atol=1e-10)
        scales = torch.stack([state["scalars"][place] for state in after])
        assert torch.allclose(head.log_scale, scales)
        assert not torch.equal(scales, torch.full_like(scales, np.log(10)))


def test_crops_mirror_images_and_turns_are_the_experiments(tmp_path, drawn):
    first_stage(tmp_path)
    for _, uniforms, maps, _ in drawn.updates:
        u = uniforms.numpy()
        mirror = np.zeros((*u.shape[:2], 2, 3), np.float32)
        mirror[..., 0, 0], mirror[..., 1, 1] = np.where(u[..., 3] < 0.5, -1, 1), 1
        quarters = np.arange(4).repeat(BATCH)
        ours = compose(compose(crops(0.8, u[..., :3]), mirror), quarter_turns(quarters))
        assert np.allclose(ours, maps.numpy(), atol=1e-6)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_stage_2_is_the_experiments(tmp_path, drawn, share):
    """The rate of the scalars, too: their parameters are a tenth of them."""
    _, states = first_stage(tmp_path)
    started = [states[f"a/{split}"] for split in SPLITS]
    runs = [
        {"id": f"b/{s}", "split": s, "from": f"a/{s}", "lr": 0.01, "with_distractors": share}
        for s in SPLITS
    ]
    drawn.updates.clear()
    job = {"runs": runs, "steps": STEPS, "depth": 1, **SHAPE.as_dict()}
    experiment.stage2(job, experiment.Data(tmp_path / "pool"), states)
    recipe = Recipe(
        STEPS, 0.01, cosine=True, weight_decay=0.0, filters=FILTERS,
        sphere=10.0, initial_loss=0.5, norm_momentum=0.02, with_distractors=0.5,
    )  # fmt: skip
    members = [Member("cosine_kmeans", split) for split in SPLITS]
    fleet = build_fleet(members, recipe, 3, FILTERS).train()
    put(fleet.encoder, started)
    fleet.sphere.center.copy_(torch.stack([state["running_mean"] for state in started]))
    optimizer = fleet_optimizer(recipe, fleet)
    present = torch.full((len(SPLITS),), share)
    for step, (_, _, _, moved) in enumerate(drawn.updates):
        set_learning_rate(optimizer, learning_rate(recipe, step))
        update(fleet, optimizer, moved, None, (SHAPE, present))
    after = [states[f"b/{split}"] for split in SPLITS]
    same(fleet.encoder, after, atol=1e-6)  # what keeps lengths from zero is added elsewhere
    scalars = torch.stack([state["scalars"] for state in after])  # (R, 4)
    slow = fleet.refiner.slow_log_scale, fleet.sphere.slow_log_scale, fleet.refiner.slow_threshold
    ours = 10 * torch.stack(slow, 1)
    assert torch.allclose(ours[:, :2], scalars[:, :2], rtol=1e-4)
    # so few images hardly move the threshold: Adam's epsilon is felt
    assert torch.allclose(ours[:, 2], scalars[:, 2], rtol=0.02)
    assert not torch.allclose(scalars[:, 1], torch.tensor(np.log(10.0)), rtol=1e-4)
    center = torch.stack([state["running_mean"] for state in after])
    assert torch.allclose(fleet.sphere.center, center)


@pytest.mark.parametrize(
    ("options", "steps", "scales", "level"),
    [
        ({"scale": 8.0, "cluster": False}, 10, [8.0] * 10, -np.inf),
        ({"scale": 12.0, "threshold": 0.3}, 2, [12.0] * 2, 0.3),
    ],
)
def test_the_refinement_at_test_is_the_experiments(options, steps, scales, level):
    shape = EpisodeShape(way=5, shot=2, query=20, unlabeled=20, distractors=5)
    members, recipe = [Member("cosine_kmeans", 0)], Recipe(filters=FILTERS, sphere=10.0)
    fleet = build_fleet(members, recipe, 3, 7).eval()
    generator = torch.Generator().manual_seed(1)
    classes = torch.randn(4, 10, 7, generator=generator)  # (E, N + H, D)
    sizes = ((5, 2), (10, 20), (5, 20))
    of_image = torch.cat([torch.arange(n).repeat_interleave(each) for n, each in sizes])
    raw = classes[:, of_image] + torch.randn(4, shape.images, 7, generator=generator)
    x = unit_length(raw)
    expected = at_test.refine(x, 2, 200, scales, level)
    refined = fleet.refined_by(build("cosine_kmeans", runs=1, **options), steps)
    predicted = refined.score(fleet.sphere.project(raw[None]), shape).argmax(-1)[0]
    truth = torch.arange(5).repeat_interleave(20)
    assert torch.allclose((predicted == truth).double().mean(-1), expected.double())
    assert 0.3 < expected.mean() < 1
