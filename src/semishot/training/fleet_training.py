"""Training a fleet on episodes, in its run folder.

A run folder holds `config.json`, `log.jsonl`, a checkpoint while training, `model.safetensors` after it, and
TensorBoard's event files if requested. If the recipe trains classifiers first, their encoders are beside the
run folders of a data set, or in it.
"""

import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from semishot import datasets
from semishot.data.episodes import check_enough
from semishot.data.pool import ImagePool
from semishot.data.splits import labeled_split
from semishot.errors import InputError
from semishot.network.encoder import embedding_features
from semishot.network.protonet import ProtoNet
from semishot.system.files import sweep, write_whole
from semishot.system.locks import Lock
from semishot.system.tensor_files import is_whole
from semishot.training import classification, loop
from semishot.training.config import FleetConfig, read_config
from semishot.training.examples import training_episodes
from semishot.training.fleet_log import EventFile, FleetLog, Row, fixed_episodes, has_events
from semishot.training.fleets import build_fleet, center, save_model, try_method
from semishot.training.loop import Event, Learner, build_optimizer, learn, resume
from semishot.training.run_folder import (
    CONFIG_FILE,
    LOCK_FILE,
    MODEL_FILE,
    STATE_FILE,
    TrainingSession,
    cut_log,
    read_sessions,
)


@dataclass(frozen=True)
class TrainingRequest:
    """Train this fleet on these images in this folder."""

    config: FleetConfig
    pool: ImagePool
    folder: Path
    device: torch.device
    checkpoint_seconds: float = field(default_factory=lambda: loop.CHECKPOINT_SECONDS)
    tensorboard: bool = False
    classifiers: Path | None = None
    """Where encoders that were trained as classifiers first are kept, for all fleets that need the same;
    None: in the run folder."""


def training(request: TrainingRequest, images: Tensor | None, row: Row) -> Iterator[Event]:
    """Train the fleet, resuming if it was interrupted, and leave its model in the folder.

    `images` are the pool's, on the device; if None, each chunk's are sent ahead of its updates. It yields
    while the device works, and while another process trains this fleet. `row` shows the progress.
    """
    config, folder = request.config, request.folder
    check_fleet(config, request.pool, folder)
    config = replace(config, framing=datasets.framing(request.pool))
    if unfinished(folder):  # a finished fleet may be on a read-only disk
        lock = Lock(folder / LOCK_FILE)
        while not lock.acquire():
            yield Event.WAITING
        with lock:
            sweep(folder, age=0)
            if not is_whole(folder / MODEL_FILE):
                if (folder / MODEL_FILE).exists():
                    print(f"{folder / MODEL_FILE} is damaged; it is trained again", file=sys.stderr)
                yield from _train_alone(replace(request, config=config), images, row)
                return
            (folder / STATE_FILE).unlink(missing_ok=True)
    row.begin(row.updates)
    if request.tensorboard and not has_events(folder):
        EventFile(folder, config, config.recipe.updates).close()


def unfinished(folder: Path) -> bool:
    """Whether there is something to train, or to clean up after a killed process."""
    leftovers = any((folder / name).exists() for name in (STATE_FILE, LOCK_FILE))
    return leftovers or not is_whole(folder / MODEL_FILE)


def _train_alone(request: TrainingRequest, images: Tensor | None, row: Row) -> Iterator[Event]:
    """`training`, once this process holds the folder's lock."""
    config, pool, folder = request.config, request.pool, request.folder
    recipe = config.recipe
    if not (folder / CONFIG_FILE).exists():
        write_whole(folder / CONFIG_FILE, config.to_json())
    _, channels, *size = pool.images.shape
    features = embedding_features(recipe.filters, size)  # which a sphere needs
    fleet = build_fleet(config.members, recipe, channels, features).to(request.device)
    optimizer = build_optimizer(recipe, fleet)
    step = resume(folder, fleet, optimizer, recipe.updates)
    cut_log(folder, step)
    earlier: list[TrainingSession] = []
    if not step and recipe.first is not None:
        earlier = yield from start_from_classifiers(request, fleet, images, row)
    if not step and fleet.sphere is not None:
        center(fleet, config, pool)
    with closing(FleetLog(folder, fleet, row)) as log:
        log.validation = fixed_episodes(config, pool, loop.CHUNK)
        log.events = EventFile(folder, config, step) if request.tensorboard else None
        named = fleet, optimizer, recipe, config.run_names, folder, pool, images
        shown, before = (row, request.checkpoint_seconds), row.updates - recipe.updates
        draw = training_episodes(config, pool)
        yield from learn(Learner(*named, draw, *shown, config.shape, log, before), step, earlier)
    if fleet.sphere is not None:
        center(fleet, config, pool)
    save_model(folder / MODEL_FILE, config, fleet)
    (folder / STATE_FILE).unlink(missing_ok=True)


def start_from_classifiers(
    request: TrainingRequest, fleet: ProtoNet, images: Tensor | None, row: Row
) -> Generator[Event, None, list[TrainingSession]]:
    """Give each run the encoder that has learned to classify the labeled images of its split.

    Returns the sessions that trained these encoders.
    """
    config, first = request.config, request.config.recipe.first
    assert first is not None
    classifiers = classification.ClassificationRequest(
        request.pool,
        config.recipe.of_classification(first),
        request.device,
        first=first,
        checkpoint_seconds=request.checkpoint_seconds,
    )
    folder = request.classifiers or request.folder / classification.CLASSIFIERS
    seeds = dict.fromkeys(member.split_seed for member in config.members)
    files = {seed: classification.file_of(classifiers, seed, folder) for seed in seeds}
    yield from classification.train_together(classifiers, files, row, images)
    encoders = {s: classification.load_encoder(classifiers, file) for s, file in files.items()}
    states = {seed: encoder.state_dict() for seed, encoder in encoders.items()}
    for name, tensor in fleet.encoder.state_dict().items():
        tensor.copy_(torch.cat([states[member.split_seed][name] for member in config.members]))
    sessions = [s for file in files.values() for s in read_sessions(file.with_suffix(".json"))]
    return [session for i, session in enumerate(sessions) if session not in sessions[:i]]


def check_fleet(
    config: FleetConfig, pool: ImagePool, folder: Path, advice: str | None = None
) -> None:
    """Raise errors early: the folder of another training, episodes the pool is too small for, a method
    outside the package that does not work. `advice` is that of `check_enough`."""
    written = folder / CONFIG_FILE
    if written.exists() and read_config(written) != config:
        raise InputError(
            f"{written} is another training; choose another --out or delete the folder"
        )
    split = labeled_split(pool.of_split("train"), config.recipe.labeled_fraction, 0)
    check_enough(split, config.shape, advice=advice)
    own = [member for member in config.members if ":" in member.model]
    if (own or config.recipe.encoder) and unfinished(folder):
        _, channels, *size = pool.images.shape
        features = embedding_features(config.recipe.filters, size)
        fleet = build_fleet(config.members, config.recipe, channels, features)
        features = fleet.encoder.features(size)
        if own:
            try_method(fleet, config.shape, features, training=True)
