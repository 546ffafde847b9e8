"""Training: fleets on episodes in their run folders, and the loop of updates, which classifiers share.

A run folder holds `config.json`, `log.jsonl`, a checkpoint while training, `model.safetensors` after it, and
TensorBoard's event files if requested. If the recipe trains classifiers first, their encoders are beside the
run folders of a data set, or in it.
"""

import hashlib
import io
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from semishot import datasets
from semishot.data.episodes import EpisodeShape, check_enough
from semishot.data.pool import ImagePool
from semishot.data.splits import labeled_split
from semishot.errors import InputError
from semishot.network.adam import Adam, NesterovSGD
from semishot.network.classifier import LinearClassifier
from semishot.network.encoder import embedding_features
from semishot.system.devices import device_name
from semishot.system.files import read_regular, reading, sweep, write_whole
from semishot.system.locks import Lock
from semishot.system.tensor_files import MOST_BYTES, DamagedError, is_whole
from semishot.training.config import FleetConfig, Recipe, learning_rate, read_config
from semishot.training.examples import CHUNK_BYTES, Draw, pixels_of, training_episodes
from semishot.training.fleet_log import EVENTS, EventFile, FleetLog, Row, fixed_episodes
from semishot.training.fleets import build_fleet, center, save_model, try_method
from semishot.training.run_folder import (
    CONFIG_FILE,
    LOCK_FILE,
    MODEL_FILE,
    STATE_FILE,
    TRAINING_FILE,
    SessionLog,
    Training,
    cut_log,
    training_of,
)
from semishot.training.update import (
    Chunk,
    Model,
    can_fuse,
    chunk_runner,
    is_captured,
    shares_done_of,
)

CHUNK = 100
"""Updates between two lines of the log; on a GPU they are one chunk."""
CPU_CHUNK = 10
"""Updates in a chunk on other devices, where they take seconds and progress should be shown."""
CHECKPOINT_SECONDS = 10.0
DIGEST_BYTES = 32
"""The size of the digest at the end of a checkpoint, which `torch.load` ignores."""


class Event(Enum):
    """What a training yields while the device works, so that others can start their work."""

    WAITING = "another process trains the same runs"
    WORKING = "the device works on a chunk of updates"
    SAVED = "the same, and a checkpoint was saved since the last event"


@dataclass(frozen=True)
class TrainingRequest:
    """Train this fleet on these images in this folder."""

    config: FleetConfig
    pool: ImagePool
    folder: Path
    device: torch.device
    checkpoint_seconds: float = field(default_factory=lambda: CHECKPOINT_SECONDS)
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
    if request.tensorboard and not (folder / EVENTS).exists():
        EventFile(folder, config).close()


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
    earlier = None
    if not step and recipe.first is not None:
        from semishot.training.classification import start_from_classifiers  # it uses this loop

        earlier = yield from start_from_classifiers(request, fleet, images, row)
    if not step and fleet.sphere is not None:
        center(fleet, config, pool)
    with closing(FleetLog(folder, fleet, row)) as log:
        log.validation = fixed_episodes(config, pool, CHUNK)
        log.events = EventFile(folder, config) if request.tensorboard else None
        named = fleet, optimizer, recipe, config.run_names, folder, pool, images
        shown, before = (row, request.checkpoint_seconds), row.updates - recipe.updates
        draw = training_episodes(config, pool)
        yield from learn(Learner(*named, draw, *shown, config.shape, log, before), step, earlier)
    if fleet.sphere is not None:
        center(fleet, config, pool)
    save_model(folder / MODEL_FILE, config, fleet)
    (folder / STATE_FILE).unlink(missing_ok=True)


@dataclass(frozen=True)
class Learner:
    """R runs that train as one network, what they see, and the folder of their checkpoints."""

    model: Model
    optimizer: torch.optim.Optimizer
    recipe: Recipe
    run_names: Sequence[str]
    folder: Path
    pool: ImagePool
    images: Tensor | None
    """The pool's images on the device; if None, each chunk's are sent ahead of its updates."""
    draw: Draw
    row: Row
    """Shows the progress."""
    checkpoint_seconds: float
    """The least time from one checkpoint to the next."""
    shape: EpisodeShape | None = None
    """Of the episodes; None: labeled batches."""
    log: FleetLog | None = None
    earlier_updates: int = 0
    """Those of the stage before, in the same row."""


def learn(learner: Learner, step: int, earlier: Training | None = None) -> Iterator[Event]:
    """Train from update `step` to the end of the recipe.

    The loop yields while the device works, so that several fleets can share a GPU: each starts its next
    chunk while those of the others run. `earlier` is the stage before; a resumed training is in its folder.
    """
    model, recipe, row = learner.model.train(), learner.recipe, learner.row
    device = model.encoder.weights[0].device
    if step:
        earlier = training_of(learner.folder / TRAINING_FILE).get("training", earlier)
    session = SessionLog(learner.folder, device_name(device), earlier)
    chunks = draw_chunks(learner, step, device)
    coming = next(chunks, None)
    if coming is not None:
        plain = isinstance(model, LinearClassifier) or recipe.encoder
        if not plain and recipe.precision == "bf16":
            size = learner.pool.images.shape[-2:]
            model.encoder.fused = can_fuse(device, size, recipe.filters)
        run_chunk = chunk_runner(model, learner.optimizer, learner.images, learner.shape, coming)
    if row.begun is None or row.done != learner.earlier_updates + step:
        row.begin(learner.earlier_updates + step)
    saved, event = time.monotonic(), Event.WORKING
    recent: list[Tensor] = []
    while (chunk := coming) is not None:
        finished = run_chunk(chunk)
        try:
            coming = next(chunks, None)  # drawn while the device works
            yield event
        finally:  # also if the training ends here: a captured graph must not outlive its tensors
            losses = finished()
        recent.append(losses.clone())  # (E, R)
        step, event = step + len(chunk), Event.WORKING
        loss = recent[-1].mean().item()
        if not math.isfinite(loss):
            raise diverged(learner, recent[-1].sum(0), step)
        row.advance(len(chunk), loss)
        if step % CHUNK and step < recipe.updates:
            continue
        check_weights(learner, step)
        if learner.log is not None:
            learner.log.write(step, chunk.rates[-1], torch.cat(recent).mean(0).tolist())
        recent.clear()
        if time.monotonic() - saved > learner.checkpoint_seconds:
            session.save()  # first: a checkpoint must not be of a session nobody knows
            parts = {"model": model.state_dict(), "optimizer": learner.optimizer.state_dict()}
            save_state(learner.folder, {**parts, "step": step})
            saved, event = time.monotonic(), Event.SAVED
    for share_done in shares_done_of(model):
        share_done.fill_(1.0)
    session.save()


def draw_chunks(learner: Learner, step: int, device: torch.device) -> Iterator[Chunk]:
    """The chunks from update `step` on; none crosses a line of the log.

    A chunk includes its pixels if the device does not hold the pool.
    """
    most, recipe, pool = CHUNK if device.type == "cuda" else CPU_CHUNK, learner.recipe, learner.pool
    if learner.images is None:
        update_bytes = learner.draw(step, 1).images.numel() * int(pool.images[0].nbytes)
        most = max(1, min(most, CHUNK_BYTES // update_bytes))
    while step < recipe.updates:
        count = min(most, CHUNK - step % CHUNK, recipe.updates - step)
        chunk = learner.draw(step, count)
        if learner.images is None:
            used, within = np.unique(chunk.images.numpy(), return_inverse=True)
            images = torch.from_numpy(within.reshape(chunk.images.shape))
            chunk = replace(chunk, images=images, pixels=pixels_of(pool, used))
        updates = range(step, step + count)
        shares = [e / recipe.updates for e in updates]
        rates = [learning_rate(recipe, e) for e in updates]
        yield replace(chunk, rates=rates, shares_done=shares)
        step += count


def check_weights(learner: Learner, step: int) -> None:
    """The last update of a chunk may make the weights non-finite after its loss was computed."""
    tensors, runs = learner.model.state_dict().values(), len(learner.run_names)
    if not torch.stack([tensor.sum() for tensor in tensors]).isfinite().all():
        own = [t.reshape(runs, -1).sum(1) for t in tensors if len(t) == runs]
        raise diverged(learner, torch.stack(own).sum(0), step)


def diverged(learner: Learner, numbers: Tensor, step: int) -> InputError:
    """An error that names the runs whose numbers (R,) are not finite, and what to do."""
    finite = numbers.isfinite().tolist()
    spoiled = [run for run, good in zip(learner.run_names, finite, strict=True) if not good]
    return InputError(
        f"training diverged before update {step:,}: the numbers of {', '.join(spoiled) or 'a refiner'} "
        f"are no longer finite. The last good checkpoint, if there was one, is kept in "
        f"{learner.folder}; train again with a lower learning rate than "
        f"{learner.recipe.learning_rate:g}, or without these runs"
    )


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


def build_optimizer(recipe: Recipe, model: Model) -> torch.optim.Optimizer:
    """Adam, with L2 on the convolution weights alone, or SGD, with L2 on all but scalars."""
    captured = is_captured(model)
    decayed: list[nn.Parameter] = list(model.encoder.weights)
    if recipe.optimizer == "sgd":
        decayed = [p for p in model.parameters() if p.ndim > 1]  # scalars have only the axis R
    others = [p for p in model.parameters() if all(p is not d for d in decayed)]
    groups = [
        {"params": decayed, "weight_decay": recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    start: float | Tensor = recipe.learning_rate
    if captured:
        start = torch.tensor(start, device=decayed[0].device)  # read at every replay
    if recipe.optimizer == "sgd":
        return NesterovSGD(groups, start)
    if not captured:
        return Adam(groups, lr=start)
    if not find_spec("triton"):
        return Adam(groups, lr=start, fused=True, capturable=True)
    from semishot.network.fused import OneKernelAdam

    return OneKernelAdam(groups, lr=start, fused=True, capturable=True)


def save_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint, with a checksum."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    write_whole(folder / STATE_FILE, content + hashlib.sha256(content).digest())


def resume(folder: Path, model: Model, optimizer: torch.optim.Optimizer, updates: int) -> int:
    """Load the checkpoint, if there is one, and return its number of updates; 0 if it is damaged."""
    path = folder / STATE_FILE
    if not path.exists():
        return 0
    try:
        state = load_state(path)
    except DamagedError as error:
        print(f"{error}; training from the start", file=sys.stderr)
        return 0
    try:
        model.load_state_dict(state["model"])
        groups = optimizer.state_dict()["param_groups"]  # as this device needs them
        optimizer.load_state_dict({**state["optimizer"], "param_groups": groups})
        step = state["step"]
        if type(step) is not int or not 0 <= step <= updates:
            raise ValueError(f"step {step!r:.40}")
    except Exception as error:  # it may hold anything
        raise InputError(
            f"the checkpoint in {folder} is not of this fleet ({type(error).__name__}); delete it to "
            "train from the start"
        ) from error
    return step


def load_state(path: Path) -> dict[str, Any]:
    """Read what `save_state` wrote; DamagedError if a byte of it has changed."""
    content = read_regular(path, MOST_BYTES)
    content, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        raise DamagedError(f"{path} is damaged: its checksum differs")
    with reading(path, "it is not a checkpoint of this version", DamagedError):
        # on the CPU: Adam needs some of it there
        state: dict[str, Any] = torch.load(io.BytesIO(content), "cpu", weights_only=True)
    return state
