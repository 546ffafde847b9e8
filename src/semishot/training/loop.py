"""The training loop, for episodes and for classification: updates, checkpoints and exact resume.

`fleet_training.py` trains fleets on episodes with it, `pretraining.py` classifiers on batches.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from semishot.errors import InputError
from semishot.network.adam import Adam
from semishot.network.encoder import ConvEncoder
from semishot.network.sgd import NesterovSGD
from semishot.training.checkpoints import last_good_state, save_state
from semishot.training.chunks import Pace
from semishot.training.config import Recipe
from semishot.training.origin import Sessions
from semishot.training.update import Chunk, RunChunk

CHUNK = 100
"""Updates between two lines of the log; on a GPU they are one chunk."""
CPU_CHUNK = 10
"""Updates in a chunk on other devices, where they take seconds and progress should be shown."""
CHECKPOINT_SECONDS = 10.0


class Event(Enum):
    """What a training yields while the device works, so that others can start their work."""

    WAITING = "another process trains the same runs"
    WORKING = "the device works on a chunk of updates"
    SAVED = "the same, and a checkpoint was saved since the last event"


class Observer(Protocol):
    """Watches a training without changing it."""

    def begin(self, step: int) -> None:
        """Updates begin; earlier processes did the first `step`."""

    def advance(self, updates: int, loss: float) -> None:
        """A chunk of updates is done; their mean loss over the runs."""

    def line(self, step: int, rate: float, losses: Sequence[float]) -> None:
        """Called for each line of the log: the learning rate, and each run's mean loss since the last."""


@dataclass(frozen=True)
class Learner:
    """R runs that train as one network, and the folder of their checkpoints."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    recipe: Recipe
    run_names: Sequence[str]
    folder: Path
    pace: Pace
    checkpoint_seconds: float | None
    """The least time from one checkpoint to the next; None is CHECKPOINT_SECONDS."""
    sessions: Sessions
    """Where the training is written down, before each of its checkpoints and at its end."""


def learn(
    learner: Learner,
    step: int,
    chunks: Iterator[Chunk],
    prepare: Callable[[Chunk], RunChunk],
    observer: Observer,
) -> Iterator[Event]:
    """Train from update `step` to the end of the recipe.

    `prepare` gets the first chunk and returns a function that runs it and all others. The loop yields
    while the device works, so that several fleets can share a GPU: each starts its next chunk while
    those of the others run.
    """
    coming = next(chunks, None)
    if coming is not None:
        run_chunk = prepare(coming)
    observer.begin(step)
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
        observer.advance(len(chunk), loss)
        if step % learner.pace.every and step < learner.recipe.updates:
            continue
        check_weights(learner, step)
        observer.line(step, chunk.rates[-1], torch.cat(recent).mean(0).tolist())
        recent.clear()
        seconds = learner.checkpoint_seconds
        if time.monotonic() - saved > (CHECKPOINT_SECONDS if seconds is None else seconds):
            learner.sessions.save()  # first: a checkpoint must not be of a session nobody knows
            save_checkpoint(learner, step)
            saved, event = time.monotonic(), Event.SAVED
    learner.sessions.save()


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


def build_optimizer(
    recipe: Recipe, encoder: ConvEncoder, model: nn.Module, captured: bool
) -> torch.optim.Optimizer:
    """Adam, with L2 on the convolution weights alone, or SGD, with L2 on all but scalars; `captured` in a
    CUDA graph or not."""
    decayed = list(encoder.weights)
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


def resume(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, updates: int) -> int:
    """Load the last good checkpoint, if there is one, and return its number of updates."""
    state = last_good_state(folder, torch.device("cpu"))  # Adam needs some of it there
    if state is None:
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


def save_checkpoint(learner: Learner, step: int) -> None:
    model, optimizer = learner.model.state_dict(), learner.optimizer.state_dict()
    save_state(learner.folder, {"model": model, "optimizer": optimizer, "step": step})
