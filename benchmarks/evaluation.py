"""Evaluation episodes per second: each image embedded once, against encoding every episode anew."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conventional import conv4, draw_episode, episode_logits
from fleet import random_images
from measurement import command, result, time_in_turns
from semishot import refine
from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImageClass, ImagePool
from semishot.paper.presets import PRESETS
from semishot.training.config import Member
from semishot.training.evaluation import EPISODES, evaluate
from semishot.training.fleets import build_fleet

MODEL, IMAGES = "masked_soft_kmeans", 20
SHAPE = EpisodeShape(way=5, shot=1, query=14, unlabeled=5, distractors=5)


def measure(device: torch.device, quick: bool) -> dict[str, Any]:
    gpu = device.type == "cuda"
    sizes = [12] if quick else [200, 1692] if gpu else [200]  # Omniglot has 1,692 test classes
    fleets = [1, 10] if gpu and not quick else [1, 2]
    episodes, loop_episodes = (20, 2) if quick else (EPISODES, 200 if gpu else 20)
    rows = []
    for classes in sizes:
        images = random_images(classes * IMAGES, 1, 28, torch.device("cpu"))
        works: dict[tuple[str, int], Callable[[], object]] = {
            ("encode each episode", 1): encode_each(images.to(device) / 255, classes, loop_episodes)
        }
        counts = {("encode each episode", 1): loop_episodes}
        for runs in fleets:
            works["embed once", runs] = embed_once(images, classes, runs, episodes, device)
            counts["embed once", runs] = runs * episodes
        taken = time_in_turns(works, device, rounds=5 if gpu else 1, seconds=2.0)
        rate = {who: counts[who] / taken[who] for who in works}
        rows += [
            {
                "classes": classes,
                "contender": contender,
                "runs": runs,
                "episodes_per_second": rate[contender, runs],
                "times_faster_than_loop": rate[contender, runs] / rate["encode each episode", 1],
            }
            for contender, runs in works
        ]
    settings = {
        "images_per_class": IMAGES,
        "episode": asdict(SHAPE),
        "episodes_per_run": episodes,
        "episodes_of_the_loop": loop_episodes,
    }
    return result("evaluation", device, quick, settings, rows)


def embed_once(
    images: Tensor, classes: int, runs: int, episodes: int, device: torch.device
) -> Callable[[], object]:
    """What `semishot evaluate` does, from the images in memory to each episode's accuracy."""
    seeds = list(range(runs))
    members = [Member(MODEL, seed) for seed in seeds]
    fleet = build_fleet(members, PRESETS["ren2018"].recipe, images.shape[1]).to(device)
    found = [ImageClass(f"class{c}", "random", "test", c * IMAGES, IMAGES) for c in range(classes)]
    pool = ImagePool("random", images.numpy(), tuple(found))
    return lambda: evaluate([(fleet, SHAPE)], pool, "test", seeds, episodes=episodes)


def encode_each(images: Tensor, classes: int, episodes: int) -> Callable[[], object]:
    """One run, on float images (I, C, H, W) that lie on the device."""
    encoder = conv4(images.shape[1]).to(images.device).eval()
    refiner = refine.build(MODEL).to(images.device)
    labels = torch.arange(SHAPE.way, device=images.device).repeat_interleave(SHAPE.query)
    lists = np.arange(classes * IMAGES).reshape(classes, IMAGES)
    half = SHAPE.shot + SHAPE.query  # the rest of a class stands for its unlabeled images
    labeled, unlabeled = list(lists[:, :half]), list(lists[:, half:])

    @torch.inference_mode()
    def run() -> Tensor:
        rng = np.random.default_rng(0)
        accuracies = []
        for _ in range(episodes):
            episode = torch.from_numpy(draw_episode(rng, labeled, unlabeled, SHAPE))
            batch = images[episode.to(images.device)]
            predicted = episode_logits(encoder, refiner, batch, SHAPE).argmax(-1)
            accuracies.append((predicted == labels).double().mean())
        return torch.stack(accuracies).cpu()

    return run


if __name__ == "__main__":
    command("evaluation", measure)
