"""One update of each refiner's fleet on a GPU: plain functions in the graph against the fused kernels.

First it runs the tests of the kernels, if pytest is installed, unless `--no-tests` is given. Names of cases
choose some.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from profile_updates import captured, kernels, microseconds
from torch import Tensor

from semishot.data.episodes import EpisodeShape
from semishot.network import fused
from semishot.network.encoder import embedding_features
from semishot.network.protonet import ProtoNet
from semishot.paper.presets import FOR_DATASET, MINI, PRESETS
from semishot.training.config import Member, Recipe
from semishot.training.fleet_training import fleet_optimizer
from semishot.training.fleets import build_fleet
from semishot.training.update import Target, update

TESTS = Path(__file__).parents[2] / "tests" / "network"
SECONDS = 200
"""After which no further case is begun."""
REPLAYS = 20
GLYPHS, PHOTOS = (1, 28), (3, 84)
"""Channels and side."""


MIXED = "soft_kmeans+distractor_cluster+masked_soft_kmeans"


@dataclass(frozen=True)
class Case:
    """A fleet and its episodes."""

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    recipe: Recipe = field(default_factory=Recipe)
    two_stage: bool = False
    """Episodes, and sphere, as in that preset; else the paper's with distractors."""
    images: tuple[tuple[int, int], ...] = (GLYPHS,)

    def recipe_of(self, image: tuple[int, int]) -> Recipe:
        if not self.two_stage:
            return self.recipe
        preset = PRESETS["two-stage"] if image == GLYPHS else FOR_DATASET["two-stage", MINI]
        same = ("sphere", "initial_loss", "with_distractors", "init_std", "norm_momentum")
        return replace(self.recipe, **{name: getattr(preset.recipe, name) for name in same})

    def shape(self, image: tuple[int, int]) -> EpisodeShape:
        shape = EpisodeShape(query=1 if image == GLYPHS else 5, distractors=5)
        if self.two_stage:
            shape = PRESETS["two-stage"].train
            shape = shape if image == GLYPHS else FOR_DATASET["two-stage", MINI].train
        if self.model == "supervised":
            shape = replace(shape, unlabeled=0, distractors=0)
        return shape

    def runs(self, image: tuple[int, int]) -> int:
        return 70 if image == GLYPHS and not self.two_stage else 10

    @property
    def target_has_distractors(self) -> bool:
        """Whether distractors take part in some episodes only."""
        return self.two_stage and self.model != "supervised"

    def members(self, runs: int) -> tuple[Member, ...]:
        models = self.model.split("+")  # side by side
        chosen = [models[run * len(models) // runs] for run in range(runs)]
        return tuple(Member(model, run, self.options) for run, model in enumerate(chosen))


STEPS = Recipe(steps=3)
BOTH = (PHOTOS, GLYPHS)
WAYS = ("plain", "fused")
CASES = {
    "two-stage cosine_kmeans": Case("cosine_kmeans", two_stage=True, images=BOTH),
    "two-stage supervised": Case("supervised", two_stage=True, images=BOTH),
    "two-stage prwn": Case("prwn", two_stage=True, images=BOTH),
    "two-stage oslo": Case("oslo", two_stage=True, images=BOTH),
    "two-stage label_propagation": Case("label_propagation", two_stage=True, images=BOTH),
    "soft_kmeans, 3 steps": Case("soft_kmeans", recipe=STEPS),
    "masked, 3 steps": Case("masked_soft_kmeans", recipe=STEPS),
    "three methods, 3 steps": Case(MIXED, recipe=STEPS),
    "fitted_mask": Case("fitted_mask"),
    "oslo": Case("oslo"),
    "cluster, N + 1 scores": Case("distractor_cluster", {"score_distractors": True}),
    "cosine_kmeans": Case("cosine_kmeans"),
    "prwn": Case("prwn"),
    "label_propagation": Case("label_propagation"),
    "masked, 128 filters": Case("masked_soft_kmeans", recipe=Recipe(filters=128)),
    "supervised": Case("supervised", images=BOTH),
    "masked": Case("masked_soft_kmeans", images=BOTH),
    "three methods": Case(MIXED, images=BOTH),
}


@contextmanager
def only(way: str) -> Iterator[None]:
    """Inside, an update is done by the plain functions, or by the kernels."""
    nothing = lambda *_: None  # noqa: E731
    with mock.patch.object(ProtoNet, "fused_losses", nothing) if way == "plain" else nullcontext():
        yield


def work_of(case: Case, image: tuple[int, int], device: torch.device) -> Callable[[], Tensor]:
    channels, side = image
    recipe, shape, runs = case.recipe_of(image), case.shape(image), case.runs(image)
    features = embedding_features(recipe.filters, (side, side))
    torch.manual_seed(0)
    fleet = build_fleet(case.members(runs), recipe, channels, features).to(device).train()
    fleet.encoder.fused = True
    optimizer = fleet_optimizer(recipe, fleet)
    pool = torch.randint(256, (2000, channels, side, side), device=device).byte()
    chosen = torch.randint(2000, (runs, shape.images), device=device)
    target: Target = (shape,)
    if case.target_has_distractors:
        target = (shape, (torch.arange(runs, device=device) % 2).float())
    return lambda: update(fleet, optimizer, pool[chosen], None, target)


@dataclass(frozen=True)
class Measured:
    us: float
    kernels: int
    loss: Tensor
    """Of the first update (R,)."""


def measure(case: Case, image: tuple[int, int], way: str, device: torch.device) -> Measured | None:
    """None if the kernels do not know the case."""
    with only(way):
        work = work_of(case, image, device)
        if way != "plain" and not _is_fused(work):
            return None
        with fused.compiled_ahead():
            work()
        work = work_of(case, image, device)
        loss = work().clone()
        graph, stream = captured(work)
        counts, _ = kernels(graph, stream)
        return Measured(microseconds(graph, stream, REPLAYS), sum(counts.values()), loss)


def _is_fused(work: Callable[[], Tensor]) -> bool:
    answers = []
    own = ProtoNet.fused_losses

    def noted(*arguments: Any) -> Tensor | None:
        answers.append(own(*arguments))
        return answers[-1]

    with mock.patch.object(ProtoNet, "fused_losses", noted), fused.compiled_ahead():
        work()
    return answers[0] is not None


def show(name: str, image: tuple[int, int], ways: Mapping[str, Measured | None], runs: int) -> None:
    cells = []
    for way in WAYS:
        found = ways.get(way)
        cells.append(f"{found.us:7.0f} {found.kernels:5}" if found else f"{'-':>7} {'':5}")
    plain, found = ways.get("plain"), ways.get("fused")
    apart = "-"
    if plain is not None and found is not None:
        apart = f"{float((found.loss - plain.loss).norm() / plain.loss.norm()):.0e}"
    print(f"{name:28} {image[1]:3} {runs:4} | {' | '.join(cells)} | {apart:>6}", flush=True)


def main() -> None:
    begin = time.monotonic()
    device = torch.device("cuda")
    if find_spec("pytest") is not None and "--no-tests" not in sys.argv:
        import pytest

        files = [str(TESTS / "test_fused.py"), str(TESTS / "test_fused_episode.py")]
        code = pytest.main([*files, "-q", "-p", "no:cacheprovider", "-o", "addopts="])
        print(f"tests: exit code {int(code)}, {time.monotonic() - begin:.0f} s", flush=True)
    print("us of one update and its kernels; losses apart from the plain ones, relative")
    print(f"{'':28} {'':3} runs | {'plain':>13} | {'fused':>13} | {'apart':>6}")
    left_out = []
    asked = [name for name in sys.argv[1:] if name != "--no-tests"]
    for name, case in ((name, CASES[name]) for name in asked or CASES):
        for image in case.images:
            if time.monotonic() - begin > SECONDS:
                left_out.append(f"{name} ({image[1]})")
                continue
            try:
                ways = {way: measure(case, image, way, device) for way in WAYS}
            except Exception as error:  # the rest of the table is still worth having
                print(f"{name:28} {image[1]:3}: {type(error).__name__}: {error}"[:200], flush=True)
                continue
            show(name, image, ways, case.runs(image))
            torch.cuda.empty_cache()
    if left_out:
        print(f"left out after {SECONDS} s: {', '.join(left_out)}")


if __name__ == "__main__":
    main()
