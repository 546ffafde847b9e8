"""Episodes drawn per second on one core, beside a loop with one NumPy choice per class."""

from typing import Any

import numpy as np
import torch

from conventional import draw_episode
from measurement import command, result, time_in_turns
from semishot.data.episodes import EpisodeShape, Stream, sample_episodes
from semishot.data.pool import ImageClass
from semishot.data.splits import labeled_split
from semishot.training.loop import CHUNK

SHAPES = [
    EpisodeShape(way=5, unlabeled=5),
    EpisodeShape(way=5, unlabeled=5, distractors=5),
    EpisodeShape(way=20, unlabeled=5, distractors=20),
]
CLASSES, IMAGES, FRACTION = 4112, 20, 0.1  # Omniglot's training classes, a tenth labeled


def measure(device: torch.device, quick: bool) -> dict[str, Any]:
    """The device has no part in it: episodes are drawn by NumPy, on one core."""
    ours, plain = (200, 20) if quick else (20_000, 500)
    classes = [
        ImageClass(f"class{c}", "random", "train", c * IMAGES, IMAGES) for c in range(CLASSES)
    ]
    split = labeled_split(classes, FRACTION, seed=0)
    lists = split.order.reshape(CLASSES, IMAGES)
    labeled, unlabeled = list(lists[:, : split.labeled[0]]), list(lists[:, split.labeled[0] :])

    def draw_chunks(shape: EpisodeShape) -> None:
        for start in range(0, ours, CHUNK):
            sample_episodes(split, shape, Stream(0, "train"), start, CHUNK)

    def draw_one_by_one(shape: EpisodeShape) -> None:
        rng = np.random.default_rng(0)
        for _ in range(plain):
            draw_episode(rng, labeled, unlabeled, shape)

    rows = []
    for shape in SHAPES:
        works = {"ours": lambda s=shape: draw_chunks(s), "loop": lambda s=shape: draw_one_by_one(s)}
        taken = time_in_turns(works, torch.device("cpu"), rounds=5, seconds=1.0)
        rows.append(
            {
                "way": shape.way,
                "unlabeled": shape.unlabeled,
                "distractors": shape.distractors,
                "episodes_per_second": ours / taken["ours"],
                "seconds_for_20000": 20_000 * taken["ours"] / ours,
                "loop_episodes_per_second": plain / taken["loop"],
                "times_faster_than_loop": taken["loop"] / plain / (taken["ours"] / ours),
            }
        )
    settings = {
        "classes": CLASSES,
        "images_per_class": IMAGES,
        "labeled_fraction": FRACTION,
        "episodes_per_call": CHUNK,
        "episodes_timed": ours,
    }
    return result("sampler", device, quick, settings, rows)


if __name__ == "__main__":
    command("sampler", measure)
