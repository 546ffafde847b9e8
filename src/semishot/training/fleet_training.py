"""Training a fleet on episodes, in its run folder.

A run folder holds `config.json`, `log.jsonl`, a checkpoint while training, `model.safetensors` after it, and
TensorBoard's event files if requested. If the recipe trains classifiers first, their encoders are beside the
run folders of a data set, or in it.
"""

import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from semishot import datasets
from semishot.data.episodes import check_enough
from semishot.data.pool import ImagePool
from semishot.data.splits import check_seed, labeled_split
from semishot.errors import InputError
from semishot.network.encoder import embedding_features
from semishot.network.protonet import ProtoNet
from semishot.system.files import sweep, write_whole
from semishot.system.locks import Lock
from semishot.system.tensor_files import is_whole
from semishot.training import loop
from semishot.training.classification import (
    CLASSIFIERS,
    ClassificationRequest,
    file_of,
    load_encoder,
    sessions_of,
    train_together,
)
from semishot.training.config import FleetConfig, read_config
from semishot.training.examples import images_on, training_episodes
from semishot.training.fleet_table import Row
from semishot.training.fleets import build_fleet, center, load_model, save_model, try_training
from semishot.training.loop import Event, FleetLog, Learner, build_optimizer, learn, resume
from semishot.training.run_folder import (
    CONFIG_FILE,
    LOCK_FILE,
    MODEL_FILE,
    STATE_FILE,
    TrainingSession,
    cut_log,
)
from semishot.training.tensorboard import EventFile, has_events
from semishot.training.validation import fixed_episodes


@dataclass(frozen=True)
class TrainingRequest:
    """Train this fleet on these images in this folder."""

    config: FleetConfig
    pool: ImagePool
    folder: Path
    device: torch.device
    checkpoint_seconds: float | None = None
    """The least time from one checkpoint to the next; None is `loop.CHECKPOINT_SECONDS`."""
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
            sweep(folder)
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
    config, pool, folder, device = request.config, request.pool, request.folder, request.device
    recipe, shape = config.recipe, config.shape
    fleet, optimizer, step = begin_or_resume(config, pool, folder, device)
    earlier: list[TrainingSession] = []
    if not step and recipe.first is not None:
        earlier = yield from start_from_classifiers(request, fleet, images, row)
    if not step and fleet.sphere is not None:
        center(fleet, config, pool)
    validation = fixed_episodes(config, pool, device, loop.CHUNK)
    event_file = EventFile(folder, config, step) if request.tensorboard else None
    with closing(FleetLog(folder, fleet, row, validation, event_file)) as log:
        learner = Learner(
            fleet,
            optimizer,
            recipe,
            config.run_names,
            folder,
            pool,
            images,
            training_episodes(config, pool),
            len(config.members) * shape.images,
            row,
            shape,
            log,
            earlier_updates=row.updates - recipe.updates,
            checkpoint_seconds=request.checkpoint_seconds,
        )
        yield from learn(learner, step, earlier)
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
    recipe = config.recipe.of_classification(first)
    seconds = request.checkpoint_seconds
    classifiers = ClassificationRequest(request.pool, recipe, request.device, False, first, seconds)
    folder = request.classifiers or request.folder / CLASSIFIERS
    seeds = dict.fromkeys(member.split_seed for member in config.members)
    files = {seed: file_of(classifiers, seed, folder) for seed in seeds}
    yield from train_together(classifiers, files, row, images)
    states = {seed: load_encoder(classifiers, file).state_dict() for seed, file in files.items()}
    for name, tensor in fleet.encoder.state_dict().items():
        tensor.copy_(torch.cat([states[member.split_seed][name] for member in config.members]))
    return sessions_of(files.values())


def train(
    config: FleetConfig, pool: ImagePool, folder: Path, device: torch.device, row: Row
) -> ProtoNet:
    """Train one fleet to the end and return it, ready to evaluate."""
    for _ in training(TrainingRequest(config, pool, folder, device), images_on(pool, device), row):
        pass
    return load_model(folder, device)[1]


def begin_or_resume(
    config: FleetConfig, pool: ImagePool, folder: Path, device: torch.device
) -> tuple[ProtoNet, torch.optim.Optimizer, int]:
    """The fleet at its last checkpoint, or untrained, with the log truncated to match."""
    _, channels, *size = pool.images.shape
    features = embedding_features(config.recipe.filters, size)
    fleet = build_fleet(config.members, config.recipe, channels, features).to(device)
    optimizer = build_optimizer(config.recipe, fleet)
    written = folder / CONFIG_FILE
    if not written.exists():
        write_whole(written, config.to_json())
    step = resume(folder, fleet, optimizer, config.recipe.updates)
    cut_log(folder, step)
    return fleet, optimizer, step


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
    for seed in {member.split_seed for member in config.members}:
        check_seed(seed)
    split = labeled_split(pool.of_split("train"), config.recipe.labeled_fraction, 0)
    check_enough(split, config.shape, advice=advice)
    if any(":" in member.model for member in config.members) and unfinished(folder):
        _, channels, *size = pool.images.shape
        try_training(config, channels, embedding_features(config.recipe.filters, size))
