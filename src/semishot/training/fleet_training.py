"""Training a fleet on episodes, in its run folder.

A run folder holds `config.json`, `log.jsonl`, checkpoints while training, `model.safetensors` after it, and
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
from semishot.system.devices import device_name
from semishot.system.files import sweep, write_whole
from semishot.system.locks import Lock
from semishot.system.tensor_files import is_whole
from semishot.training import loop
from semishot.training.centering import center
from semishot.training.checkpoints import LOCK_FILE, MODEL_FILE, delete_checkpoints, unfinished
from semishot.training.chunks import (
    Pace,
    draw_chunks,
    images_on,
    training_episodes,
    updates_that_fit,
)
from semishot.training.classification import ClassificationRequest
from semishot.training.config import FleetConfig, Recipe, read_config
from semishot.training.fleet_table import Row
from semishot.training.fleets import build_fleet, load_model, save_model
from semishot.training.log import cut_log
from semishot.training.loop import Event, Learner, build_optimizer, learn, resume
from semishot.training.observer import FleetObserver, RowObserver
from semishot.training.origin import Session, Sessions
from semishot.training.pretraining import (
    CLASSIFIERS,
    file_of,
    load_encoder,
    sessions_of,
    train_together,
)
from semishot.training.tensorboard import EventFile
from semishot.training.trial import try_training
from semishot.training.update import Chunk, RunChunk, can_fuse, chunk_runner
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
            delete_checkpoints(folder)
    row.begin(row.updates)
    if request.tensorboard:
        EventFile(folder, config, config.recipe.updates).close()


def _train_alone(request: TrainingRequest, images: Tensor | None, row: Row) -> Iterator[Event]:
    """`training`, once this process holds the folder's lock."""
    config, pool, folder, device = request.config, request.pool, request.folder, request.device
    fleet, optimizer, step = begin_or_resume(config, pool, folder, device)
    before: list[Session] = []
    if not step and config.recipe.first is not None:
        before = yield from start_from_classifiers(request, fleet, images, row)
    if not step and fleet.sphere is not None:
        center(fleet, config, pool)
    most = loop.CHUNK if device.type == "cuda" else loop.CPU_CHUNK
    together = len(config.members) * config.shape.images
    pace = Pace(loop.CHUNK, most if images is not None else updates_that_fit(most, together, pool))
    seconds = request.checkpoint_seconds
    sessions = Sessions(folder, device_name(device), resumed=step > 0, before=before)
    learner = Learner(
        fleet, optimizer, config.recipe, config.run_names, folder, pace, seconds, sessions
    )
    draw = training_episodes(config, pool)
    chunks = draw_chunks(draw, config.recipe, step, pace, pool if images is None else None)

    def prepare(first: Chunk) -> RunChunk:
        fleet.train()
        fleet.encoder.fused = config.recipe.precision == "bf16" and can_fuse(
            device, pool.images.shape[-2:], config.recipe.filters
        )
        return chunk_runner(fleet, optimizer, images, config.shape, first)

    validation = fixed_episodes(config, pool, device, pace.every)
    event_file = EventFile(folder, config, step) if request.tensorboard else None
    done = row.updates - config.recipe.updates
    with closing(FleetObserver(folder, fleet, row, validation, event_file, done)) as observer:
        yield from learn(learner, step, chunks, prepare, observer)
    if fleet.sphere is not None:
        center(fleet, config, pool)
    save_model(folder / MODEL_FILE, config, fleet)
    delete_checkpoints(folder)


def start_from_classifiers(
    request: TrainingRequest, fleet: ProtoNet, images: Tensor | None, row: Row
) -> Generator[Event, None, list[Session]]:
    """Give each run the encoder that has learned to classify the labeled images of its split.

    It returns the sessions in which they have.
    """
    config, first = request.config, request.config.recipe.first
    assert first is not None
    recipe = config.recipe.of_classification(first)
    seconds = request.checkpoint_seconds
    classifiers = ClassificationRequest(request.pool, recipe, request.device, False, first, seconds)
    seeds = list(dict.fromkeys(member.split_seed for member in config.members))
    kept = request.classifiers or request.folder / CLASSIFIERS
    files = {seed: file_of(classifiers, seed, kept) for seed in seeds}
    yield from train_together(classifiers, files, RowObserver(row), images)
    held = {seed: load_encoder(classifiers, file).state_dict() for seed, file in files.items()}
    for name, tensor in fleet.encoder.state_dict().items():
        tensor.copy_(torch.cat([held[member.split_seed][name] for member in config.members]))
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
    optimizer = fleet_optimizer(config.recipe, fleet)
    written = folder / "config.json"
    if not written.exists():
        write_whole(written, config.to_json())
    step = resume(folder, fleet, optimizer, config.recipe.updates)
    cut_log(folder, step)
    return fleet, optimizer, step


def fleet_optimizer(recipe: Recipe, fleet: ProtoNet) -> torch.optim.Optimizer:
    """On CUDA its updates are captured in a graph."""
    captured = fleet.encoder.weights[0].device.type == "cuda"
    return build_optimizer(recipe, fleet.encoder, fleet, captured)


def check_fleet(
    config: FleetConfig, pool: ImagePool, folder: Path, advice: str | None = None
) -> None:
    """Raise errors early: the folder of another training, episodes the pool is too small for, a method
    outside the package that does not work. `advice` is that of `check_enough`."""
    written = folder / "config.json"
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
