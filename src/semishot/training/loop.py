"""The training loop, for episodes and for classification: updates, log lines, checkpoints, exact resume.

`fleet_training.py` trains fleets on episodes with it, `classification.py` classifiers on labeled images.
"""

import hashlib
import io
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImagePool
from semishot.errors import InputError
from semishot.network.adam import Adam, NesterovSGD
from semishot.network.classifier import LinearClassifier
from semishot.system.devices import device_name
from semishot.system.files import read_regular, reading, write_whole
from semishot.system.tensor_files import MOST_BYTES, DamagedError
from semishot.training import run_folder
from semishot.training.config import Recipe, learning_rate
from semishot.training.examples import CHUNK_BYTES, Draw, pixels_of
from semishot.training.fleet_log import FleetLog, Row
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


def learn(
    learner: Learner, step: int, earlier: Sequence[run_folder.TrainingSession] = ()
) -> Iterator[Event]:
    """Train from update `step` to the end of the recipe.

    The loop yields while the device works, so that several fleets can share a GPU: each starts its next
    chunk while those of the others run. `earlier` are the sessions of the stage before; those of a resumed
    training are in its folder.
    """
    model, recipe, row = learner.model.train(), learner.recipe, learner.row
    device = model.encoder.weights[0].device
    if step:
        earlier = run_folder.read_sessions(learner.folder / run_folder.TRAINING_FILE) or earlier
    sessions = run_folder.SessionLog(learner.folder, device_name(device), earlier)
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
        coming = next(chunks, None)  # drawn while the device works
        yield event
        recent.append(finished().clone())  # (E, R)
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
            sessions.save()  # first: a checkpoint must not be of a session nobody knows
            parts = {"model": model.state_dict(), "optimizer": learner.optimizer.state_dict()}
            save_state(learner.folder, {**parts, "step": step})
            saved, event = time.monotonic(), Event.SAVED
    for share_done in shares_done_of(model):
        share_done.fill_(1.0)
    sessions.save()


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
    write_whole(folder / run_folder.STATE_FILE, content + hashlib.sha256(content).digest())


def resume(folder: Path, model: Model, optimizer: torch.optim.Optimizer, updates: int) -> int:
    """Load the checkpoint, if there is one, and return its number of updates; 0 if it is damaged."""
    path = folder / run_folder.STATE_FILE
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
