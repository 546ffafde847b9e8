"""Training a fleet: the loop, its checkpoints, and exact resume.

A run folder holds `config.json`, `log.jsonl`, checkpoints while training, `model.safetensors` after, and
event files of TensorBoard if asked for.
"""

import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from semishot import datasets
from semishot.data.episodes import EpisodeShape, check_enough
from semishot.data.pool import ImagePool
from semishot.data.splits import check_seed, labeled_split
from semishot.errors import InputError
from semishot.network.protonet import ProtoNet
from semishot.system.files import sweep, write_whole
from semishot.system.locks import Lock
from semishot.system.tensor_files import is_whole
from semishot.training.checkpoints import (
    LOCK,
    MODEL,
    forget_states,
    last_good_state,
    save_state,
    unfinished,
)
from semishot.training.chunks import draw_chunks
from semishot.training.config import FleetConfig, Recipe
from semishot.training.fleet_table import Row
from semishot.training.fleets import build_fleet, load_model, read_config, save_model
from semishot.training.log import cut_log
from semishot.training.observer import following
from semishot.training.tensorboard import Board
from semishot.training.update import Chunk, RunChunk, captured_chunk, plain_chunk

CHUNK = 100
"""Updates between two lines of the log; on a GPU their episodes are drawn together."""
CPU_CHUNK = 10
"""Elsewhere fewer: they take seconds, and someone may be watching."""
HELD_BY_A_CPU = 2**31
"""Bytes of the largest pool that is copied to a CPU's memory."""
CHECKPOINT_SECONDS = 10.0


def training(
    config: FleetConfig,
    pool: ImagePool,
    images: Tensor | None,
    folder: Path,
    device: torch.device,
    row: Row,
    checkpoint_seconds: float | None = None,
    tensorboard: bool = False,
) -> Iterator[None]:
    """Train the fleet in `folder`, from where it stopped if it has begun, and leave its model there.

    `images` are the pool's, on the device; None sends each chunk's ahead of its updates. A generator:
    it yields while the device works on a chunk of updates, so that several fleets can share a GPU,
    each starting its next chunk while the others' run; and while another process trains this fleet.
    `row` tells how far it is.
    """
    check_fleet(config, pool, folder)
    config = replace(config, framing=datasets.framing(pool))
    seconds = CHECKPOINT_SECONDS if checkpoint_seconds is None else checkpoint_seconds
    if unfinished(folder):  # a finished one may lie on a disk that cannot be written
        lock = Lock(folder / LOCK)
        while not lock.acquire():
            yield
        with lock:
            sweep(folder)
            if not is_whole(folder / MODEL):
                if (folder / MODEL).exists():
                    print(f"{folder / MODEL} is damaged; it is trained again", file=sys.stderr)
                yield from _train_alone(
                    config, pool, images, folder, device, row, seconds, tensorboard
                )
                return
            forget_states(folder)
    row.begin(config.recipe.updates)
    if tensorboard:
        Board(folder, config, config.recipe.updates).close()


def _train_alone(
    config: FleetConfig,
    pool: ImagePool,
    images: Tensor | None,
    folder: Path,
    device: torch.device,
    row: Row,
    checkpoint_seconds: float,
    tensorboard: bool,
) -> Iterator[None]:
    """`training`, once this process is the only one at work in the folder."""
    model, optimizer, step = begin_or_resume(config, pool, folder, device)
    most = CHUNK if device.type == "cuda" else CPU_CHUNK
    chunks = draw_chunks(config, pool, step, CHUNK, most, bring_images=images is None)
    coming = next(chunks, None)
    if coming is not None:
        model.train()
        model.encoder.fused = config.recipe.precision == "bf16" and can_fuse(
            device, pool.images.shape[-2:], config.recipe.filters
        )
        run_chunk = chunk_runner(model, optimizer, images, config.shape, coming)
    saved, recent = time.monotonic(), []
    with following(config, pool, folder, device, row, step, CHUNK, tensorboard) as follower:
        while (chunk := coming) is not None:
            finished = run_chunk(chunk)
            coming = next(chunks, None)  # drawn while the device is at work
            yield
            recent.append(finished().clone())  # (E, R)
            step += len(chunk)
            loss = recent[-1].mean().item()
            if not math.isfinite(loss):
                raise diverged(config.run_names, recent[-1].sum(0), config.recipe, step, folder)
            row.advance(len(chunk), loss)
            if step % CHUNK and step < config.recipe.updates:
                continue
            check_weights(config, model, step, folder)
            follower.line(step, chunk.rates[-1], torch.cat(recent).mean(0).tolist(), model)
            recent.clear()
            if time.monotonic() - saved > checkpoint_seconds:
                save_checkpoint(folder, model, optimizer, step)
                saved = time.monotonic()
    save_model(folder / MODEL, config, model)
    forget_states(folder)


def check_weights(config: FleetConfig, model: ProtoNet, step: int, folder: Path) -> None:
    """The last update of a chunk may spoil the weights after its loss was taken."""
    sums = [tensor.sum() for tensor in model.state_dict().values()]
    if not torch.stack(sums).isfinite().all():
        of_runs = [t.reshape(len(t), -1).sum(1) for t in model.encoder.state_dict().values()]
        spoiled = torch.stack(of_runs).sum(0)  # (R,)
        raise diverged(config.run_names, spoiled, config.recipe, step, folder)


def diverged(
    runs: Sequence[str], numbers: Tensor, recipe: Recipe, step: int, folder: Path
) -> InputError:
    """Names the runs whose numbers (R,) are not finite, and says what is left."""
    fine = numbers.isfinite().tolist()
    spoiled = [run for run, good in zip(runs, fine, strict=True) if not good]
    return InputError(
        f"training diverged before update {step:,}: the numbers of {', '.join(spoiled) or 'a refiner'} "
        f"are no longer finite. The last good checkpoint, if there was one, is kept in {folder}; train "
        f"again with a lower learning rate than {recipe.learning_rate:g}, or without these runs"
    )


def train(
    config: FleetConfig, pool: ImagePool, folder: Path, device: torch.device, row: Row
) -> ProtoNet:
    """Train one fleet to the end and return it, ready to evaluate."""
    for _ in training(config, pool, images_on(pool, device), folder, device, row):
        pass
    return load_model(folder, device)[1]


def images_on(pool: ImagePool, device: torch.device) -> Tensor | None:
    """(I, C, H, W) uint8, which fleets that train side by side share; None if there is no room."""
    room = HELD_BY_A_CPU
    if device.type == "cuda":
        room = torch.cuda.mem_get_info(device)[0] // 2
    if pool.images.nbytes > room:
        return None
    return torch.from_numpy(np.array(pool.images)).to(device)


def can_fuse(device: torch.device, size: tuple[int, ...], filters: int) -> bool:
    """Whether the fused bf16 kernels can train on images of this size; said aloud if a GPU cannot."""
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


def build_optimizer(config: FleetConfig, model: ProtoNet) -> torch.optim.Adam:
    """Adam, with L2 on the convolution weights alone."""
    decayed = list(model.encoder.weights)
    others = [p for p in model.parameters() if all(p is not d for d in decayed)]
    groups = [
        {"params": decayed, "weight_decay": config.recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    rate = config.recipe.learning_rate
    if decayed[0].device.type != "cuda":
        return torch.optim.Adam(groups, lr=rate)
    on_device = torch.tensor(rate, device=decayed[0].device)  # a graph reads it when replayed
    return torch.optim.Adam(groups, lr=on_device, fused=True, capturable=True)


def begin_or_resume(
    config: FleetConfig, pool: ImagePool, folder: Path, device: torch.device
) -> tuple[ProtoNet, torch.optim.Adam, int]:
    """The fleet at its last checkpoint, or untrained, with the log cut to match."""
    model = build_fleet(config.members, config.recipe, pool.images.shape[1]).to(device)
    optimizer = build_optimizer(config, model)
    written = folder / "config.json"
    if not written.exists():
        write_whole(written, lambda path: path.write_text(config.to_json(), encoding="utf-8"))
    step = resume(folder, model, optimizer, config.recipe.updates)
    cut_log(folder, step)
    return model, optimizer, step


def resume(folder: Path, model: nn.Module, optimizer: torch.optim.Adam, updates: int) -> int:
    """Load the last good checkpoint, if there is one; the updates it has seen."""
    state = last_good_state(folder, torch.device("cpu"))  # Adam wants some of it there
    if state is None:
        return 0
    try:
        model.load_state_dict(state["model"])
        groups = optimizer.state_dict()["param_groups"]  # as this device wants them
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


def check_fleet(config: FleetConfig, pool: ImagePool, folder: Path) -> None:
    """Errors before the work: another training's folder, or episodes the pool cannot give."""
    written = folder / "config.json"
    if written.exists() and read_config(written) != config:
        raise InputError(
            f"{written} is another training; choose another --out or delete the folder"
        )
    for seed in {member.split_seed for member in config.members}:
        check_seed(seed)
    split = labeled_split(pool.of_split("train"), config.recipe.labeled_fraction, 0)
    check_enough(split, config.shape)


def save_checkpoint(folder: Path, model: nn.Module, optimizer: torch.optim.Adam, step: int) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    save_state(folder, state)
