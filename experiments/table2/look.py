"""What the fleets of Table 2 say about their distance from the paper: on other classes, over time, inside.

PYTHONPATH=src:experiments:benchmarks python -m table2.look OUT.json [--shots 1 5] [--dataset NAME]
    [--runs FOLDER] [--data-root FOLDER] [--device D]

The fleets are those that `semishot reproduce table2` has left below the runs, with the schedule of the
authors' code and with that of the text. Measured are the cells of the table on the validation classes, the
accuracy on validation episodes by update, and for Soft k-Means + Cluster the radius and the share of the
unlabeled images that its classes get. What OUT.json holds is kept.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from json_lines import write_lines
from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImagePool
from semishot.data.splits import ClassImages, all_labeled
from semishot.network.protonet import ProtoNet, take_run
from semishot.paper.masks import score_episodes
from semishot.paper.published import DISTRACTORS, TABLES, TRAINED
from semishot.report.statistics import unbiased
from semishot.system.devices import device_name, pick_device
from semishot.training.config import SUPERVISED, FleetConfig
from semishot.training.episode_streams import EpisodeStreams, streams_of
from semishot.training.evaluation import at_test, embed_classes, episode_accuracies, open_fleet
from semishot.training.log import read_log
from semishot.training.origin import code_state, versions

PRESETS, CLUSTER = ("ren2018", "ren2018-text"), "distractor_cluster"
TEST = TABLES["table2"].tests[20]
EPISODES, CLUSTER_EPISODES = 600, 100


@dataclass(frozen=True)
class Fleet:
    folder: Path
    config: FleetConfig
    model: ProtoNet
    pool: ImagePool


@dataclass(frozen=True)
class Run:
    """A run of a fleet, and the embeddings of all validation images by it."""

    fleet: Fleet
    place: int

    @property
    def name(self) -> dict[str, Any]:
        member, shape = self.fleet.config.members[self.place], self.fleet.config.shape
        return {
            "preset": self.fleet.config.preset,
            "shot": shape.shot,
            "distractors": shape.distractors,
            "model": member.model,
            "split_seed": member.split_seed,
        }

    @property
    def images(self) -> ClassImages:
        return all_labeled(self.fleet.pool.of_split("val"))

    @property
    def test(self) -> EpisodeShape:
        return replace(TEST, shot=self.name["shot"], distractors=self.name["distractors"])

    def streams(self, shape: EpisodeShape) -> EpisodeStreams:
        return streams_of(self.images, [self.name["split_seed"]], shape, "val")

    def measured(self) -> dict[str, Any]:
        model = take_run(self.fleet.model, self.place)
        embeddings = embed_classes(model, self.fleet.pool, self.images)  # (1, I, D)
        found = {**self.name, "cells": self.cells(model, embeddings)}
        return found | (self.shares(model, embeddings) if self.name["model"] == CLUSTER else {})

    def cells(self, model: ProtoNet, embeddings: Tensor) -> list[tuple[str, int, float]]:
        """Its cells of the table: row, distractor classes, accuracy in %."""
        row, test = self.name["model"], self.test
        tests = [(row, model, test)]
        if row == SUPERVISED:
            inference, refiner = at_test(self.fleet.config, "soft_kmeans")
            refined = model.refined_by(refiner)
            tests = [(row, model, replace(test, unlabeled=0))]
            tests += [(inference, refined, replace(test, distractors=h)) for h in DISTRACTORS]
        found = []
        for row, one, shape in tests:
            shares = episode_accuracies(one, embeddings, self.streams(shape), EPISODES)
            found.append((row, shape.distractors, percent(shares.mean())))
        return found

    def shares(self, model: ProtoNet, embeddings: Tensor) -> dict[str, float]:
        """The radius, and how much of the unlabeled images of the classes and of the distractors the N
        classes get together."""
        shape = self.test
        refiner: Any = model.double().refiner
        scores = score_episodes(refiner, embeddings[0], self.streams(shape), CLUSTER_EPISODES)
        got, own = 1 - scores["cluster"], shape.way * shape.unlabeled  # (E, U)
        found = {"radius": refiner.log_radius.exp().item(), "of_classes": got[:, :own].mean()}
        found |= {"of_distractors": got[:, own:].mean()} if shape.distractors else {}
        return {name: float(f"{value:.3g}") for name, value in found.items()}


def fleets(given: argparse.Namespace) -> Iterator[Fleet]:
    """Of the paper's methods, without options."""
    rows = {SUPERVISED, *TRAINED}
    places = [(given.runs / given.dataset / preset) for preset in PRESETS]
    for path in (path for place in places for path in sorted(place.glob("*/model.safetensors"))):
        config, model, pool = open_fleet(path, given.data_root, pick_device(given.device))
        plain = all(m.model in rows and not m.options for m in config.members)
        if plain and config.shape.shot in given.shots:
            yield Fleet(path.parent, config, model, pool)


def over_time(folder: Path) -> dict[str, Any]:
    """Accuracy on validation episodes and training loss by update, mean over the runs; and how far the
    accuracy has fallen."""
    lines = [line for line in read_log(folder) if "accuracy" in line]
    seen = {line["step"]: 100 * np.array(line["accuracy"]) for line in lines}
    best = max(seen, key=lambda step: float(seen[step].mean()))
    lost = seen[best] - seen[max(seen)]
    return {
        "runs": len(lost),
        "by_update": {str(step): round(values.mean(), 2) for step, values in seen.items()},
        "loss": {str(line["step"]): round(float(np.mean(line["loss"])), 3) for line in lines},
        "highest_at": best,
        "lost_since": round(lost.mean(), 2),
        "error": round(error(lost), 2),
    }


def percent(share: float) -> float:
    return round(100 * float(share), 3)


def error(values: Any) -> float:
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0


def text_of(held: Mapping[str, Any]) -> str:
    """The table on the validation classes, each cell beside the paper's on the test classes."""
    by_cell: dict[tuple[str, tuple[str, int, int]], list[float]] = {}
    for run in held["runs"]:
        for row, distractors, value in run["cells"]:
            cell = row, run["shot"], distractors
            by_cell.setdefault((run["preset"], cell), []).append(value)
    lines = []
    for (preset, cell), values in sorted(
        by_cell.items(), key=lambda item: (item[0][0], item[0][1][1:])
    ):
        paper, ours = TABLES["table2"].cells[cell], error(values)
        z = (np.mean(values) - paper.mean) / np.hypot(ours, unbiased(paper.error))
        lines.append(
            f"{preset} {cell}: {np.mean(values):.2f} ± {ours:.2f}, paper {paper.mean} (z {z:+.1f})"
        )
    for name, seen in held["over_time"].items():
        fallen = f"{seen['lost_since']} ± {seen['error']} lost since"
        lines.append(f"{name}: highest at {seen['highest_at']:,} updates, {fallen}")
    return "\n".join(lines)


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shots", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--dataset", default="mini-imagenet")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args(words)
    held: dict[str, Any] = {"runs": [], "over_time": {}}
    held |= json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
    held |= {
        "device": device_name(pick_device(given.device)),
        "versions": versions(),
        **code_state(),
    }
    for fleet in fleets(given):
        held["over_time"][fleet.config.name] = over_time(fleet.folder)
        for run in (Run(fleet, place) for place in range(len(fleet.config.members))):
            if not any(run.name.items() <= entry.items() for entry in held["runs"]):
                held["runs"].append(run.measured())
                write_lines(given.out, held)
                print(held["runs"][-1], file=sys.stderr, flush=True)
    write_lines(given.out, held)
    print(text_of(held))


if __name__ == "__main__":
    main(sys.argv[1:])
