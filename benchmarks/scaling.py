"""How the cost of an update grows with runs, way, unlabeled images and image size, one at a time."""

from typing import Any

import torch

from fleet import fleet_updates, random_images
from measurement import command, result, time_in_turns
from semishot.data.episodes import EpisodeShape

MODEL, DISTRACTORS = "masked_soft_kmeans", 5
GRIDS: dict[str, dict[str, list[Any]]] = {
    "cuda": {
        "runs": [10, 1, 3, 30, 70],
        "way": [5, 10, 20],
        "unlabeled": [5, 1, 10, 20],
        "image": [[1, 28], [3, 84]],
    },
    "cpu": {
        "runs": [2, 1, 5, 10],
        "way": [5, 10, 20],
        "unlabeled": [5, 1, 10],
        "image": [[1, 28], [3, 84]],
    },
    "quick": {"runs": [1, 2], "way": [2, 3], "unlabeled": [1, 2], "image": [[1, 28], [3, 84]]},
}
"""The first value of each is the base, where the others stand while one changes."""


def measure(device: torch.device, quick: bool) -> dict[str, Any]:
    gpu = device.type == "cuda"
    grid = GRIDS["quick" if quick else device.type]
    updates = 1 if quick else 30 if gpu else 2
    base = {factor: values[0] for factor, values in grid.items()}
    points = [("base", base)]
    points += [
        (factor, {**base, factor: value}) for factor, values in grid.items() for value in values[1:]
    ]
    pools = {tuple(image): random_images(2000, *image, device) for image in grid["image"]}
    works, shapes = {}, {}
    for place, (_, at) in enumerate(points):
        shapes[place] = EpisodeShape(
            way=at["way"], unlabeled=at["unlabeled"], distractors=DISTRACTORS
        )
        pool = pools[tuple(at["image"])]
        works[place] = fleet_updates(MODEL, at["runs"], shapes[place], pool, updates)
    taken = time_in_turns(works, device, rounds=1 if quick else 5, seconds=3.0)
    rows = []
    for place, (factor, at) in enumerate(points):
        each = taken[place] / updates / at["runs"]
        rows.append(
            {
                "factor": factor,
                **at,
                "images_per_update": shapes[place].images,
                "us_per_update_and_run": each * 1e6,
                "us_per_image": each * 1e6 / shapes[place].images,
                "times_base": each * base["runs"] * updates / taken[0],
            }
        )
    settings = {"model": MODEL, "distractors": DISTRACTORS, "updates_timed": updates, "base": base}
    return result("scaling", device, quick, settings, rows)


if __name__ == "__main__":
    command("scaling", measure)
