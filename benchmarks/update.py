"""Time per update and run: easyfsl, a conventional eager loop, and our fleets (Omniglot shape)."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from conventional import eager_updates, easyfsl_updates, random_episodes
from measurement import Rows, command, result, time_in_turns
from semishot.data.episodes import EpisodeShape
from semishot.paper.presets import PRESETS
from semishot.training.config import SUPERVISED, Member
from semishot.training.fleets import build_fleet
from semishot.training.loop import build_optimizer
from semishot.training.update import Chunk, can_fuse, chunk_runner

CASES = {
    "supervised": (None, EpisodeShape(unlabeled=0)),
    "masked": ("masked_soft_kmeans", EpisodeShape(unlabeled=5)),
    "masked, distractors": ("masked_soft_kmeans", EpisodeShape(unlabeled=5, distractors=5)),
}


Contender = tuple[str, int]
"""A name, and how many runs it trains at once."""


def measure(device: torch.device, quick: bool) -> dict[str, Any]:
    gpu = device.type == "cuda"
    fleets = [1, 2] if quick else [1, 10, 30, 70] if gpu else [1, 10, 30]
    updates = 2 if quick else 50 if gpu else 6  # of one run between two looks at the clock
    rounds, seconds = (1, 1.0) if quick else (5, 2.0 if gpu else 4.0)
    count = 1000 if quick else 82_240  # as many as Omniglot has for training
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (count, 1, 28, 28), generator=generator, dtype=torch.uint8)
    images = images.to(device)
    floats = images.float() / 255
    rows: Rows = []
    notes = []
    for case, (refiner, shape) in CASES.items():
        works: dict[Contender, Callable[[], object]] = {}
        if refiner is None:
            try:
                works["easyfsl", 1] = easyfsl_updates(shape, floats, updates)
            except ImportError as error:
                notes.append(f"easyfsl is left out: {error}.")
        works["eager loop", 1] = eager_updates(refiner, shape, floats, updates)
        counts = dict.fromkeys(works, updates)
        for runs in fleets:
            counts["our fleet", runs] = many = updates if gpu else max(1, updates // runs)
            model = refiner or SUPERVISED
            works["our fleet", runs] = fleet_updates(model, runs, shape, images, many)
        with torch.backends.cudnn.flags(enabled=True, benchmark=True):
            taken = time_in_turns(works, device, rounds, seconds)
        each = {who: taken[who] / counts[who] / who[1] for who in works}  # seconds
        for (contender, runs), own in each.items():
            about = {"case": case, "contender": contender, "runs": runs}
            times = each["eager loop", 1] / own
            rows.append(
                {**about, "us_per_update_and_run": own * 1e6, "times_faster_than_eager": times}
            )
    settings = {
        "image": [1, 28, 28],
        "filters": 64,
        "episodes": {case: asdict(shape) for case, (_, shape) in CASES.items()},
        "updates_timed": updates,
        "rounds_at_most": rounds,
        "notes": notes,
    }
    found = result("update", device, quick, settings, rows)
    if "easyfsl" in sys.modules:
        found["versions"]["easyfsl"] = sys.modules["easyfsl"].__version__
    return found


def fleet_updates(
    model: str, runs: int, shape: EpisodeShape, images: Tensor, updates: int
) -> Callable[[], Tensor]:
    """A function that does some updates of a fleet and returns their losses, (E, R)."""
    recipe, device = PRESETS["ren2018"].recipe, images.device
    members = tuple(Member(model, seed) for seed in range(runs))
    fleet = build_fleet(members, recipe, images.shape[1]).to(device).train()
    fleet.encoder.fused = can_fuse(device, images.shape[2:], recipe.filters)
    episodes = random_episodes(len(images), updates * runs, shape).unflatten(0, (updates, runs))
    chunk = Chunk(episodes, None, [1e-3] * updates)
    run = chunk_runner(fleet, build_optimizer(recipe, fleet), images, shape, chunk)
    return lambda: run(chunk)()


if __name__ == "__main__":
    command("update", measure)
