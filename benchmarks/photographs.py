"""Time per update and run on photographs (3 x 84 x 84): an eager loop, our fleets, images sent ahead."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch

from conventional import eager_updates
from fleet import brought_updates, fleet_updates, random_images
from measurement import Rows, command, result, time_in_turns
from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImagePool
from semishot.training.config import SUPERVISED
from update import Contender, table_rows

CASES = {
    "supervised": (None, EpisodeShape(query=5, unlabeled=0)),
    "masked": ("masked_soft_kmeans", EpisodeShape(query=5)),
    "masked, distractors": ("masked_soft_kmeans", EpisodeShape(query=5, distractors=5)),
}
BROUGHT = "our fleet, images brought along"


def measure(device: torch.device, quick: bool) -> dict[str, Any]:
    gpu = device.type == "cuda"
    fleets = [1, 3, 10] if gpu and not quick else [1, 2]
    updates = 1 if quick else 60 if gpu else 2
    rounds, seconds = (1, 1.0) if quick else (5, 2.0)
    images = random_images(20_000 if gpu and not quick else 200, 3, 84, device)
    pool = ImagePool("random", images.cpu().numpy(), ())
    floats = images[:2000].float() / 255
    rows: Rows = []
    for case, (refiner, shape) in CASES.items():
        if quick:
            shape = replace(shape, way=2, query=1, distractors=min(shape.distractors, 1))
        model, most = refiner or SUPERVISED, fleets[-1]
        works: dict[Contender, Callable[[], object]] = {
            ("eager loop", 1): eager_updates(refiner, shape, floats, updates)
        }
        for runs in fleets:
            works["our fleet", runs] = fleet_updates(model, runs, shape, images, updates)
        works[BROUGHT, most] = brought_updates(model, most, shape, pool, updates, device)
        with torch.backends.cudnn.flags(enabled=True, benchmark=True):
            taken = time_in_turns(works, device, rounds, seconds)
        rows += table_rows(case, {who: taken[who] / updates / who[1] for who in works})
    settings = {
        "image": [3, 84, 84],
        "filters": 64,
        "episodes": {case: asdict(shape) for case, (_, shape) in CASES.items()},
        "updates_timed": updates,
        "rounds_at_most": rounds,
        "notes": [],
    }
    return result("photographs", device, quick, settings, rows)


if __name__ == "__main__":
    command("photographs", measure)
