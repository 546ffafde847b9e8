"""The 5-shot arms of Table 2, trained side by side on one device, tested on both lists of classes, tabled.

arms.py OUT [ARM ...]: all of `ARMS`, or these. It leaves OUT/arms.json and OUT/arms.md; a killed call goes on
where it stopped. RUNS, SEMISHOT_DATA, DEVICE, SPLITS, UPDATES, EPISODES and EVERY may be set.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from semishot import datasets, refine
from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImagePool, Split
from semishot.network.protonet import ProtoNet
from semishot.paper import published
from semishot.paper.authors_network import authors_network
from semishot.paper.plan import fleet_config, run_folder
from semishot.paper.reproduce import DONE
from semishot.report.render import grid_as_markdown
from semishot.report.tables import Grid, GridCell, Measured, beside, standard_error
from semishot.system.devices import pick_device
from semishot.system.files import write_json, write_whole
from semishot.training import loop
from semishot.training.config import SEMI_SUPERVISED_INFERENCE, SUPERVISED, FleetConfig, read_config
from semishot.training.evaluation import evaluate
from semishot.training.examples import images_on
from semishot.training.fleet_log import FleetLog, row_of
from semishot.training.fleets import build_fleet, load_model, save_model
from semishot.training.loop import TrainingRequest, build_optimizer, save_state, training
from semishot.training.requests import FleetRequest
from semishot.training.run_folder import MODEL_FILE, STATE_FILE

EVERY, SPLITS = int(os.environ.get("EVERY", "10000")), int(os.environ.get("SPLITS", "5"))
"""Updates between two copies of the weights; split seeds."""
UPDATES, EPISODES = os.environ.get("UPDATES"), int(os.environ.get("EPISODES", "600"))
DEVICE = pick_device(os.environ.get("DEVICE", "auto"))
TEST = EpisodeShape(shot=5, query=20, unlabeled=20)
"""Of Table 2; with distractors, five classes more."""
METHODS = "soft_kmeans", "masked_soft_kmeans"
ARMS: dict[str, dict[str, Any]] = {
    "text": {"preset": "ren2018-text", "models": METHODS, "distractors": 0},
    "text-distractors": {"preset": "ren2018-text", "models": METHODS, "distractors": 5},
    "weights": {"models": (SUPERVISED,)},
    "tf32": {"models": (SUPERVISED,), "precision": "tf32"},
    "tf32-text": {"preset": "ren2018-text", "models": (SUPERVISED,), "precision": "tf32"},
    "text-cluster": {"preset": "ren2018-text", "models": ("distractor_cluster",), "distractors": 0},
}
"""`weights`: the layers start as in the authors' code, those of one shape identical."""
FOUND_AGAIN = "text", "text-distractors", "text-cluster"
"""Arms that are fleets of Table 2 with a preset: `reproduce table2` finds them."""
Cell = dict[str, Any]
"""An arm after some updates, a row of the table, a list of classes: an accuracy in % for each split."""


class Copies(FleetLog):
    """A log that also keeps copies of the weights."""

    def write(self, step: int, rate: float, losses: Sequence[float]) -> None:
        super().write(step, rate, losses)
        if step % EVERY == 0:
            config = read_config(self.folder / "config.json")
            save_model(self.folder / f"{step}.safetensors", config, self.model)


def config_of(arm: str, pool: ImagePool) -> FleetConfig:
    given = {"dataset": pool.name, "shot": 5, "updates": UPDATES and int(UPDATES), **ARMS[arm]}
    models, seeds = given.pop("models"), tuple(range(SPLITS))
    fleets = [fleet_config(FleetRequest(model=m, split_seeds=seeds, **given), pool) for m in models]
    return replace(fleets[0], members=tuple(m for fleet in fleets for m in fleet.members))


def start_from_authors_weights(config: FleetConfig, folder: Path) -> None:
    """A checkpoint of no updates: weights as TensorFlow draws them for the authors' seed of each split."""
    fleet = build_fleet(config.members, config.recipe, channels=3)
    for run, member in enumerate(config.members):  # the authors' seeds are 0, 1001, ...
        drawn = authors_network(3, config.recipe.filters, seed=1001 * member.split_seed)
        for own, theirs in zip(fleet.encoder.weights, drawn.weights, strict=True):
            own.data[run].copy_(theirs[0])
    state = {"model": fleet.state_dict(), "step": 0}
    state["optimizer"] = build_optimizer(config.recipe, fleet).state_dict()
    save_state(folder, state)


def train(configs: dict[str, FleetConfig], folders: dict[str, Path], pool: ImagePool) -> None:
    loop.FleetLog = Copies
    images, told = images_on(pool, DEVICE), time.monotonic()
    rows, active = {arm: row_of(config) for arm, config in configs.items()}, {}
    for arm, config in configs.items():
        left = (MODEL_FILE, STATE_FILE)
        if arm == "weights" and not any((folders[arm] / name).exists() for name in left):
            start_from_authors_weights(config, folders[arm])
        request = TrainingRequest(config, pool, folders[arm], DEVICE, checkpoint_seconds=60.0)
        active[arm] = training(request, images, rows[arm])
    while active:
        active = {arm: fleet for arm, fleet in active.items() if next(fleet, DONE) is not DONE}
        if time.monotonic() - told > 15:
            told = time.monotonic()
            print({arm: (row.done, round(row.rate)) for arm, row in rows.items()}, flush=True)


def tested(arm: str, path: Path, pool: ImagePool) -> list[Cell]:
    """The rows of Table 2 that these weights give; copies, on what may be the paper's test classes."""
    config, fleet = load_model(path, DEVICE)
    shape = replace(TEST, distractors=config.shape.distractors)
    seeds = [member.split_seed for member in config.members]
    tests: list[tuple[str | None, ProtoNet, EpisodeShape]] = [(None, fleet, shape)]
    if config.members[0].model == SUPERVISED:
        inference = fleet.refined_by(refine.build("soft_kmeans"))
        shapes = TEST, replace(TEST, distractors=5)
        tests += [(SEMI_SUPERVISED_INFERENCE, inference, shape) for shape in shapes]
    swapped = pool.about.get("preparation") == "swapped"
    lists: tuple[Split, ...] = ("val", "test")
    cells = []
    for classes in lists if path.name == MODEL_FILE else lists[swapped:][:1]:
        measured = evaluate([test[1:] for test in tests], pool, classes, seeds, episodes=EPISODES)
        for (row, _, shape), each in zip(tests, measured, strict=True):
            own: dict[str, list[float]] = {}
            for member, accuracies in zip(config.members, each, strict=True):
                accuracy = round(100 * float(accuracies.mean()), 3)
                own.setdefault(row or member.model, []).append(accuracy)
            about = {"arm": arm, "updates": step_of(path), "distractors": shape.distractors}
            cells += [
                {**about, "model": m, "classes": classes, "accuracy": a} for m, a in own.items()
            ]
    return cells


def step_of(path: Path) -> int:
    """The updates behind a copy, or behind a trained model."""
    whole = path.name == MODEL_FILE
    return read_config(path.with_name("config.json")).recipe.updates if whole else int(path.stem)


def table(cells: Sequence[Cell]) -> str:
    """A line for each arm, row and list, with the paper's cell beside the last weights."""
    steps, rows = sorted({cell["updates"] for cell in cells}), dict[tuple[Any, ...], Any]()
    for cell in cells:
        key = tuple(cell[name] for name in ("arm", "model", "distractors", "classes"))
        values = cell["accuracy"]
        ours = Measured(fmean(values), standard_error(values), 0.0, len(values))
        rows.setdefault(key, {})[cell["updates"]] = ours
    lines: list[list[GridCell]] = []
    for (arm, model, distractors, classes), own in rows.items():
        paper = published.CELLS.get(("mini-imagenet", model, 5, distractors))
        shown = [own[step].number(SPLITS) if step in own else None for step in steps]
        last = beside(own[max(own)], paper)
        lines.append([arm, published.title(model), distractors, classes, *shown, *last])
    header = ["arm", "model", "H", "classes", *(f"{step:,}" for step in steps)]
    return grid_as_markdown(Grid("", [*header, "paper", "difference"], lines))


def main(out: Path, arms: Sequence[str]) -> None:
    pool = datasets.load("mini-imagenet", Path(os.environ["SEMISHOT_DATA"]))
    runs = Path(os.environ.get("RUNS", "runs"))
    configs = {arm: config_of(arm, pool) for arm in arms}
    folders = {arm: runs / "arms" / arm for arm in arms}
    folders |= {arm: run_folder(runs, configs[arm]) for arm in FOUND_AGAIN if arm in arms}
    train(configs, folders, pool)
    file = out / "arms.json"
    cells: list[Cell] = json.loads(file.read_text()) if file.exists() else []
    for arm, folder in folders.items():
        copies = (path for path in folder.glob("*.safetensors") if path.stem.isdecimal())
        for path in (folder / MODEL_FILE, *sorted(copies, key=step_of)):
            if (arm, step_of(path)) not in {(cell["arm"], cell["updates"]) for cell in cells}:
                cells += tested(arm, path, pool)
                write_json(file, cells)
    write_whole(out / "arms.md", table(cells) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(ARMS))
