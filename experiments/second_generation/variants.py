"""Variants of the preset `two-stage`, trained by the package and compared on validation classes.

PYTHONPATH=src:experiments:benchmarks python -m second_generation.variants DATASET OUT.json [--splits N]
    [--runs FOLDER] [--only NAME...] [--updates N] [--episodes N] [--device D] [--data-root FOLDER]

DATASET is mini-imagenet or omniglot, prepared. Finished fleets below the runs are found again, unfinished
ones go on, and classifiers are shared; no test image is read. Prints, for every variant and setting at test,
the accuracy in each column with its error over splits (ddof = 1), then the difference from the preset
paired over splits. OUT.json has the accuracies of all splits. On Omniglot every variant is measured with one
view of an image and with the preset's number of views, and beside what no refinement can exceed by much:
prototypes that know which unlabeled images are theirs.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from json_lines import write_lines
from semishot import datasets, refine
from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImagePool
from semishot.data.splits import all_labeled
from semishot.network.protonet import ProtoNet
from semishot.paper import presets, published
from semishot.paper.jobs import Site, train_all
from semishot.paper.presets import COSINE, MINI, TIERED, AtTest, Preset
from semishot.system.devices import device_name, pick_device
from semishot.training.augment import maps_at_test
from semishot.training.centering import center
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.episode_streams import streams_of
from semishot.training.evaluation import embed_classes, episode_accuracies
from semishot.training.fleets import load_model
from semishot.training.origin import versions

BASE = "the preset"


@dataclass(frozen=True)
class Variant:
    recipe: Recipe
    train: EpisodeShape
    model: str = COSINE


def variants_of(preset: Preset, dataset: str) -> dict[str, Variant]:
    """By name; the first is what the others are compared with."""
    recipe, train = preset.recipe, preset.train
    first = recipe.first
    assert first is not None
    plain = replace(recipe, first=replace(first, rotation_loss=0.0))
    if dataset in (MINI, TIERED):
        return {
            BASE: Variant(recipe, train),
            "twice the episodes": Variant(replace(recipe, updates=2 * recipe.updates), train),
            "no rotation loss": Variant(plain, train),
        }
    masked = presets.preset("semishot", dataset)
    wide = replace(masked.train, distractors=published.DISTRACTORS[-1])
    recipe = replace(recipe, views=1)  # they matter at test alone
    slow = replace(recipe, norm_momentum=0.02)
    longer = replace(first, updates=2 * first.updates)
    return {
        BASE: Variant(recipe, train),
        "no classification first": Variant(replace(recipe, first=None), train),
        "batch norm's momentum 0.02": Variant(slow, train),
        "momentum 0.02, three steps in training": Variant(replace(slow, steps=3), train),
        "momentum 0.02, twice the classification": Variant(replace(slow, first=longer), train),
        "momentum 0.02, twice the episodes": Variant(
            replace(slow, updates=2 * recipe.updates), train
        ),
        "Masked, preset semishot": Variant(masked.recipe, wide, "masked_soft_kmeans"),
    }


Settings = dict[str, Mapping[int, AtTest | None]]
"""How to refine at test, by distractor classes; None: as in training."""


def settings_of(preset: Preset, dataset: str) -> Settings:
    usual = {h: preset.at_test[COSINE, h] for h in published.DISTRACTORS}
    if dataset not in (MINI, TIERED):
        return drawing_settings(usual)
    grid = [(8.0, None, 5), (10.0, None, 10), (12.0, 0.25, 3), (12.0, 0.3, 3), (12.0, 0.2, 3)]
    grid += [(10.0, 0.25, 3), (16.0, 0.3, 3), (16.0, 0.35, 3), (16.0, 0.4, 5), (24.0, 0.4, 3)]
    found: dict[str, Mapping[int, AtTest | None]] = {"the preset's": usual}
    found["as learned, 1 step"] = dict.fromkeys(usual)
    for scale, threshold, steps in grid:
        options = {"scale": scale} | ({} if threshold is None else {"threshold": threshold})
        options |= {"cluster": False} if threshold is None else {}
        level = "no cluster" if threshold is None else f"threshold {threshold}"
        one = dict.fromkeys(usual, AtTest(steps, options))
        found[f"scale {scale:g}, {level}, {steps} steps"] = one
    return found


def drawing_settings(usual: Mapping[int, AtTest]) -> Settings:
    """For Omniglot, where thresholds of 0.6 are learned; the grid is for the columns with distractors."""
    found: Settings = {"the preset's": usual, "as learned": dict.fromkeys(usual)}
    found |= {
        f"scale {scale}, no cluster, 10 steps": {
            0: AtTest(10, {"scale": float(scale), "cluster": False})
        }
        for scale in (6, 10, 14)
    }
    for steps in (2, 3, 5):
        for scale in (8, 10, 14):
            for threshold in (0.62, 0.68, 0.72, 0.76):
                name = f"scale {scale}, threshold {threshold}, {steps} steps"
                options = {"scale": float(scale), "threshold": threshold}
                found[name] = {5: AtTest(steps, options)}
    return found


class Known(nn.Module):
    """The weights of the truth: each class's unlabeled images are its own, distractors nobody's."""

    def __init__(self, distractors: int) -> None:
        super().__init__()
        self.distractors = distractors

    def forward(self, unlabeled: Tensor, prototypes: Tensor) -> Tensor:
        way = prototypes.shape[-2]
        each = unlabeled.shape[-2] // (way + self.distractors)
        own = torch.arange(unlabeled.shape[-2], device=unlabeled.device) // each
        weights = (own[:, None] == torch.arange(way, device=own.device)).to(unlabeled.dtype)
        return weights.expand(*unlabeled.shape[:-1], way)


def columns_of(dataset: str) -> list[EpisodeShape]:
    table = next(t for t in published.TABLES.values() if t.dataset == dataset)
    return [
        replace(test, shot=shot, distractors=h)
        for shot in table.shots
        for test in table.tests.values()
        for h in published.DISTRACTORS
    ]


def column_name(shape: EpisodeShape) -> str:
    return f"{shape.shot}-shot M{shape.unlabeled}" + (" D" if shape.distractors else "")


def refined(model: ProtoNet, how: AtTest | None) -> ProtoNet:
    if how is None:
        return model
    refiner = refine.build(COSINE, runs=model.encoder.runs, **how.options)
    return model.refined_by(refiner.to(model.encoder.weights[0].device), how.steps)


def measure(
    model: ProtoNet, pool: ImagePool, seeds: Sequence[int], preset: Preset, episodes: int
) -> dict[str, dict[str, list[float]]]:
    """By setting and column, the accuracy in % of each split; other methods refine as in training."""
    images = all_labeled(pool.of_split("val"))
    embeddings = embed_classes(model, pool, images)
    settings = settings_of(preset, pool.name)
    if not isinstance(model.refiner, type(refine.build(COSINE))):
        settings = {key: how for key, how in settings.items() if key.startswith("as learned")}
    found: dict[str, dict[str, list[float]]] = {"not refined": {}}
    for shape in columns_of(pool.name):
        streams, name = streams_of(images, seeds, shape, "val"), column_name(shape)
        h = shape.distractors
        every = {"not refined": model.refined_by(None), "all known": model.refined_by(Known(h))}
        every |= {key: refined(model, how[h]) for key, how in settings.items() if h in how}
        for setting, other in every.items():
            right = episode_accuracies(other.eval(), embeddings, streams, episodes)
            found.setdefault(setting, {})[name] = [
                round(100 * float(share), 3) for share in right.mean(1)
            ]
    return found


def text_of(results: Mapping[str, Mapping[str, Mapping[str, list[float]]]]) -> str:
    lines = []
    usual = results.get(BASE, {})
    for variant, settings in results.items():
        lines.append(variant)
        for setting, cells in settings.items():
            parts = []
            for column, values in cells.items():
                parts.append(f"{column} {np.mean(values):.2f} ± {error_of(values):.2f}")
                if variant != BASE and column in usual.get(setting, {}):
                    gain = np.array(values) - np.array(usual[setting][column])
                    parts[-1] += f" ({gain.mean():+.2f} ± {error_of(gain):.2f})"
            lines.append(f"  {setting:<34} {np.mean([*cells.values()]):.2f} | " + "; ".join(parts))
    return "\n".join(lines)


def error_of(values: Any) -> float:
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else math.nan


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("out", type=Path)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--updates", type=int)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-root", type=Path)
    given = parser.parse_args(words)
    pool, device = datasets.load(given.dataset, given.data_root), pick_device(given.device)
    preset = presets.preset("two-stage", given.dataset)
    site, seeds = Site(pool, given.runs, device), list(range(given.splits))
    chosen = {
        name: variant
        for name, variant in variants_of(preset, given.dataset).items()
        if not given.only or name in given.only
    }
    results: dict[str, dict[str, dict[str, list[float]]]] = {}
    seconds: dict[str, float] = {}
    for name, variant in chosen.items():
        recipe = variant.recipe
        if given.updates is not None:
            share = given.updates / preset.recipe.updates
            recipe = recipe.with_updates(max(1, round(recipe.updates * share)))
        members = tuple(Member(variant.model, seed) for seed in seeds)
        config = FleetConfig(
            pool.name, pool.fingerprint, "two-stage", recipe, variant.train, members
        )
        begun = time.monotonic()
        train_all([config], site, 1)
        seconds[name] = round(time.monotonic() - begun, 1)
        model = load_model(site.folder(config), device)[1]
        for views in sorted({recipe.views, preset.recipe.views}):
            model.moved = torch.from_numpy(maps_at_test(preset.recipe.augment, views))
            if model.sphere is not None:
                center(model, config, pool)
            measured = measure(model, pool, seeds, preset, given.episodes)
            results[name if views == 1 else f"{name}, {views} views"] = measured
        print(f"{name}: trained in {seconds[name]} s, {time.monotonic() - begun:.0f} s in all")
        sys.stdout.flush()
        about = {"dataset": pool.name, "splits": seeds, "episodes": given.episodes}
        about |= {"device": device_name(device), "versions": json.dumps(versions())}
        write_lines(given.out, {**about, "seconds": seconds, "accuracy": results})
        if device.type == "cuda":
            torch.cuda.empty_cache()
    print(text_of(results))


if __name__ == "__main__":
    main(sys.argv[1:])
