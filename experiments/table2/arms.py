"""The 5-shot arms of Table 2, trained side by side on one device, then tested on both lists of classes.

arms.py OUT [ARM ...]: all of `ARMS`, or these. A killed call goes on where it stopped. RUNS, SEMISHOT_DATA,
DEVICE, SPLITS, UPDATES, EPISODES, EVERY and SECONDS_LEFT (after which it stops) may be set.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import torch

from semishot import datasets, refine
from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImagePool, Split
from semishot.network.protonet import ProtoNet
from semishot.paper.authors_network import authors_network
from semishot.paper.plan import fleet_config, run_folder
from semishot.paper.reproduce import DONE
from semishot.system.devices import pick_device
from semishot.system.files import write_json
from semishot.training.config import SUPERVISED, FleetConfig, Member
from semishot.training.evaluation import evaluate
from semishot.training.examples import images_on, training_episodes
from semishot.training.fleet_log import FleetLog, Row, row_of
from semishot.training.fleets import build_fleet, load_model, save_model
from semishot.training.loop import Learner, build_optimizer, learn, resume
from semishot.training.requests import FleetRequest
from semishot.training.run_folder import MODEL_FILE, cut_log

EVERY = int(os.environ.get("EVERY", "10000"))
"""Updates between two copies of the weights."""
TEST = EpisodeShape(shot=5, query=20, unlabeled=20)
"""Of Table 2; with distractors, five classes more."""
METHODS = "soft_kmeans", "masked_soft_kmeans"
ARMS: dict[str, dict[str, object]] = {
    "text": {"preset": "ren2018-text", "models": METHODS, "distractors": 0},
    "text-distractors": {"preset": "ren2018-text", "models": METHODS, "distractors": 5},
    "weights": {"preset": "ren2018", "models": (SUPERVISED,)},
    "tf32": {"preset": "ren2018", "models": (SUPERVISED,), "precision": "tf32"},
    "tf32-text": {"preset": "ren2018-text", "models": (SUPERVISED,), "precision": "tf32"},
    "text-cluster": {"preset": "ren2018-text", "models": ("distractor_cluster",), "distractors": 0},
}
"""`weights`: the layers start as in the authors' code, those of one shape identical."""


class Copies(FleetLog):
    """A log that also keeps copies of the weights."""

    config: FleetConfig

    def write(self, step: int, rate: float, losses: Sequence[float]) -> None:
        super().write(step, rate, losses)
        if step % EVERY == 0:
            save_model(self.folder / f"{step}.safetensors", self.config, self.model)


def config_of(arm: str, pool: ImagePool, splits: int, updates: int | None) -> FleetConfig:
    given = {"dataset": pool.name, "shot": 5, "updates": updates, **ARMS[arm]}
    models = given.pop("models")
    seeds = tuple(range(splits))
    fleets = [
        fleet_config(FleetRequest(model=model, split_seeds=seeds, **given), pool)  # type: ignore[arg-type]
        for model in models  # type: ignore[attr-defined]
    ]
    return replace(fleets[0], members=tuple(m for fleet in fleets for m in fleet.members))


def authors_weights(fleet: ProtoNet, members: Sequence[Member]) -> None:
    """Each run's weights as TensorFlow draws them for the authors' seed of this split: 0, 1001, ..."""
    for run, member in enumerate(members):
        drawn = authors_network(3, fleet.encoder.filters, seed=1001 * member.split_seed)
        for own, theirs in zip(fleet.encoder.weights, drawn.weights, strict=True):
            own.data[run].copy_(theirs[0])


def train(
    arm: str,
    config: FleetConfig,
    folder: Path,
    pool: ImagePool,
    images: torch.Tensor | None,
    row: Row,
) -> Iterator[object]:
    """As `semishot train` does, with copies of the weights."""
    device = pick_device(os.environ.get("DEVICE", "auto"))
    folder.mkdir(parents=True, exist_ok=True)
    fleet = build_fleet(config.members, config.recipe, pool.images.shape[1]).to(device)
    if arm == "weights":
        authors_weights(fleet, config.members)
    optimizer = build_optimizer(config.recipe, fleet)
    step = resume(folder, fleet, optimizer, config.recipe.updates)
    cut_log(folder, step)
    (folder / "config.json").write_text(config.to_json())
    with closing(Copies(folder, fleet, row)) as log:
        log.config = config
        named = (fleet, optimizer, config.recipe, config.run_names, folder, pool, images)
        draw = training_episodes(config, pool)
        yield from learn(Learner(*named, draw, row, 60.0, config.shape, log), step)
    save_model(folder / MODEL_FILE, config, fleet)
    (folder / "state.pt").unlink(missing_ok=True)


def tested(
    path: Path, pool: ImagePool, lists: Sequence[Split], episodes: int
) -> list[dict[str, object]]:
    """The rows of Table 2 that these weights give, by list and run."""
    config, fleet = load_model(path, pick_device(os.environ.get("DEVICE", "auto")))
    seeds = [member.split_seed for member in config.members]
    shape = replace(TEST, distractors=config.shape.distractors)
    tests = [(None, fleet, shape)]
    if config.members[0].model == SUPERVISED:
        inference = fleet.refined_by(refine.build("soft_kmeans"))
        row = "semi_supervised_inference"
        tests += [(row, inference, TEST), (row, inference, replace(TEST, distractors=5))]
    cells = []
    for split in lists:
        accuracies = evaluate([test[1:] for test in tests], pool, split, seeds, episodes=episodes)
        for (row, _, shape), each in zip(tests, accuracies, strict=True):
            for member, own in zip(config.members, each, strict=True):
                about = {"model": row or member.model, "distractors": shape.distractors}
                seed, accuracy = member.split_seed, round(100 * float(own.mean()), 3)
                cells.append({**about, "split": split, "split_seed": seed, "accuracy": accuracy})
    return cells


def main(out: Path, arms: Sequence[str]) -> None:
    updates, splits = os.environ.get("UPDATES"), int(os.environ.get("SPLITS", "5"))
    episodes = int(os.environ.get("EPISODES", "600"))
    end = time.monotonic() + float(os.environ.get("SECONDS_LEFT", "inf"))
    pool = datasets.load("mini-imagenet", Path(os.environ["SEMISHOT_DATA"]))
    images = images_on(pool, pick_device(os.environ.get("DEVICE", "auto")))
    configs = {arm: config_of(arm, pool, splits, updates and int(updates)) for arm in arms}
    runs = Path(os.environ.get("RUNS", "runs"))
    folders = {arm: runs / "arms" / arm for arm in arms}
    for arm in {"text", "text-distractors", "text-cluster"} & {*arms}:
        folders[arm] = run_folder(runs, configs[arm])  # where `reproduce table2` finds them
    rows = {arm: row_of(config) for arm, config in configs.items()}
    active = {
        arm: train(arm, config, folders[arm], pool, images, rows[arm])
        for arm, config in configs.items()
        if not (folders[arm] / MODEL_FILE).exists()
    }
    told = 0.0
    while active and time.monotonic() < end:
        for arm, fleet in list(active.items()):
            if next(fleet, DONE) is DONE:
                del active[arm]
        if time.monotonic() - told > 15:
            told = time.monotonic()
            print({arm: (row.done, round(row.rate)) for arm, row in rows.items()}, flush=True)
    out.mkdir(parents=True, exist_ok=True)
    file = out / "arms.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    last = [path for arm in arms for path in folders[arm].glob(MODEL_FILE)]
    copies = [p for arm in arms for p in folders[arm].glob("*.safetensors") if p.stem.isdecimal()]
    swapped = pool.about.get("preparation") == "swapped"
    theirs: Split = "test" if swapped else "val"  # the paper's test classes, perhaps
    copies.sort(key=lambda path: (int(path.stem) % 20_000 != 0, int(path.stem)))
    for path in [*last, *copies]:
        whole = path.name == MODEL_FILE
        arm = next(arm for arm in arms if folders[arm] == path.parent)
        name = f"{arm}/{'end' if whole else path.stem}"
        if name not in known and (whole or time.monotonic() < end):
            known[name] = tested(path, pool, ("val", "test") if whole else (theirs,), episodes)
            write_json(file, known)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(ARMS))
