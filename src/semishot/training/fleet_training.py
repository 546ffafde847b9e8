"""Training a fleet on episodes, in its run folder.

A run folder holds `config.json`, `log.jsonl`, checkpoints while training, `model.safetensors` after it, and
TensorBoard's event files if requested.
"""

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from semishot import datasets
from semishot.data.episodes import EpisodeShape, check_enough
from semishot.data.pool import ImagePool
from semishot.data.splits import check_seed, labeled_split
from semishot.errors import InputError
from semishot.network.protonet import ProtoNet
from semishot.system.devices import device_name
from semishot.system.files import sweep, write_whole
from semishot.system.locks import Lock
from semishot.system.tensor_files import is_whole
from semishot.training import loop
from semishot.training.checkpoints import LOCK_FILE, MODEL_FILE, delete_checkpoints, unfinished
from semishot.training.chunks import (
    Pace,
    draw_chunks,
    images_on,
    training_episodes,
    updates_that_fit,
)
from semishot.training.config import FleetConfig, Recipe, read_config
from semishot.training.fleet_table import Row
from semishot.training.fleets import build_fleet, load_model, save_model
from semishot.training.log import cut_log
from semishot.training.loop import Event, Learner, build_optimizer, learn, resume
from semishot.training.observer import FleetObserver
from semishot.training.origin import Sessions
from semishot.training.tensorboard import EventFile
from semishot.training.update import Chunk, RunChunk, captured_chunk, plain_chunk
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
    row.begin(config.recipe.updates)
    if request.tensorboard:
        EventFile(folder, config, config.recipe.updates).close()


def _train_alone(request: TrainingRequest, images: Tensor | None, row: Row) -> Iterator[Event]:
    """`training`, once this process holds the folder's lock."""
    config, pool, folder, device = request.config, request.pool, request.folder, request.device
    fleet, optimizer, step = begin_or_resume(config, pool, folder, device)
    most = loop.CHUNK if device.type == "cuda" else loop.CPU_CHUNK
    pace = Pace(
        loop.CHUNK, most if images is not None else updates_that_fit(most, row.images, pool)
    )
    seconds = request.checkpoint_seconds
    learner = Learner(fleet, optimizer, config.recipe, config.run_names, folder, pace, seconds)
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
    sessions = Sessions(folder, device_name(device))
    with closing(FleetObserver(folder, fleet, row, validation, event_file)) as observer:
        for event in learn(learner, step, chunks, prepare, observer):
            if event is Event.SAVED:
                sessions.save()
            yield event
    sessions.save()
    save_model(folder / MODEL_FILE, config, fleet)
    delete_checkpoints(folder)


def train(
    config: FleetConfig, pool: ImagePool, folder: Path, device: torch.device, row: Row
) -> ProtoNet:
    """Train one fleet to the end and return it, ready to evaluate."""
    for _ in training(TrainingRequest(config, pool, folder, device), images_on(pool, device), row):
        pass
    return load_model(folder, device)[1]


def can_fuse(device: torch.device, size: tuple[int, ...], filters: int) -> bool:
    """Whether the fused bf16 kernels can train on images of this size; warns on a GPU if they cannot."""
    if device.type != "cuda":
        return False
    chip = find_spec("triton") and torch.cuda.get_device_capability(device) >= (8, 0)
    tiles = filters >= 16 and filters & (filters - 1) == 0
    if chip and tiles and not any(side % 2 for side in size):
        return True
    print(
        "training in float32, slower: bf16 needs Triton, a GPU of 2020 or later, filters that are a "
        f"power of two from 16 (here {filters}) and an even image size (here "
        f"{' x '.join(map(str, size))})",
        file=sys.stderr,
    )
    return False


def chunk_runner(
    model: ProtoNet,
    optimizer: torch.optim.Adam,
    images: Tensor | None,
    shape: EpisodeShape,
    first: Chunk,
) -> RunChunk:
    """Captured and replayed on CUDA, plain elsewhere."""
    if model.encoder.weights[0].device.type != "cuda":
        return plain_chunk(model, optimizer, images, shape)
    return captured_chunk(model, optimizer, images, shape, first)


def begin_or_resume(
    config: FleetConfig, pool: ImagePool, folder: Path, device: torch.device
) -> tuple[ProtoNet, torch.optim.Adam, int]:
    """The fleet at its last checkpoint, or untrained, with the log truncated to match."""
    fleet = build_fleet(config.members, config.recipe, pool.images.shape[1]).to(device)
    optimizer = fleet_optimizer(config.recipe, fleet)
    written = folder / "config.json"
    if not written.exists():
        write_whole(written, config.to_json())
    step = resume(folder, fleet, optimizer, config.recipe.updates)
    cut_log(folder, step)
    return fleet, optimizer, step


def fleet_optimizer(recipe: Recipe, fleet: ProtoNet) -> torch.optim.Adam:
    """On CUDA its updates are captured in a graph."""
    captured = fleet.encoder.weights[0].device.type == "cuda"
    return build_optimizer(recipe, fleet.encoder, fleet, captured)


def check_fleet(config: FleetConfig, pool: ImagePool, folder: Path) -> None:
    """Raise errors early: the folder of another training, or episodes the pool is too small for."""
    written = folder / "config.json"
    if written.exists() and read_config(written) != config:
        raise InputError(
            f"{written} is another training; choose another --out or delete the folder"
        )
    for seed in {member.split_seed for member in config.members}:
        check_seed(seed)
    split = labeled_split(pool.of_split("train"), config.recipe.labeled_fraction, 0)
    check_enough(split, config.shape)
