"""Training a fleet: the loop, its checkpoints, and exact resume.

A run folder holds `config.json`, `log.jsonl`, `state.pt` while training, `model.safetensors` after.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from semishot.augment import sample_maps
from semishot.config import FleetConfig, learning_rate
from semishot.episodes import EpisodeShape, check_enough, sample_episodes
from semishot.errors import InputError
from semishot.files import write_whole
from semishot.image_pool import ImagePool, Indices, gather
from semishot.model import ProtoNet, build_fleet
from semishot.progress import Meter
from semishot.splits import check_seed, labeled_split
from semishot.update import Chunk, RunChunk, captured_chunk, plain_chunk

CHUNK = 100
"""Updates whose episodes are drawn together, and between two lines of the log."""
CHUNK_BYTES = 2**28
"""Images that a chunk may bring along, where the device does not hold the pool."""
HELD_BY_A_CPU = 2**31
"""Bytes of the largest pool that is copied to a CPU's memory."""
CHECKPOINT_SECONDS = 10.0


def training(
    config: FleetConfig,
    pool: ImagePool,
    images: Tensor | None,
    folder: Path,
    device: torch.device,
    meter: Meter,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Iterator[None]:
    """Train the fleet in `folder`, from where it stopped if it has begun, and leave its model there.

    `images` are the pool's, on the device; None sends each chunk's ahead of its updates. A generator:
    it yields while the device works on a chunk of updates, so that several fleets can share a GPU,
    each starting its next chunk while the others' run.
    """
    check_fleet(config, pool, folder)
    if (folder / "model.safetensors").exists():
        (folder / "state.pt").unlink(missing_ok=True)  # a kill may have come between the two
        meter.skip(cost(config))
        return
    model, optimizer, step = begin_or_resume(config, pool, folder, device)
    meter.skip(cost(config) * step // config.recipe.updates)
    chunks = draw_chunks(config, pool, step, bring_images=images is None)
    following = next(chunks, None)
    if following is not None:
        model.train()
        model.encoder.fused = config.recipe.precision == "bf16" and can_fuse(
            device, pool.images.shape[-2:], config.recipe.filters
        )
        run_chunk = chunk_runner(model, optimizer, images, config.shape, following)
    saved, recent = time.monotonic(), []
    while (chunk := following) is not None:
        finished = run_chunk(chunk)
        following = next(chunks, None)  # drawn while the device is at work
        yield
        recent.append(finished().clone())  # (E, R)
        step += len(chunk)
        meter.advance(chunk.images.numel(), f"loss {recent[-1].mean():.3f}")
        if step % CHUNK and step < config.recipe.updates:
            continue
        append_log(folder, step, chunk.rates[-1], torch.cat(recent).mean(0).tolist())
        recent.clear()
        if time.monotonic() - saved > checkpoint_seconds:
            save_state(folder, model, optimizer, step)
            saved = time.monotonic()
    save_model(folder / "model.safetensors", config, model)
    (folder / "state.pt").unlink(missing_ok=True)


def train(
    config: FleetConfig, pool: ImagePool, folder: Path, device: torch.device, meter: Meter
) -> ProtoNet:
    """Train one fleet to the end and return it, ready to evaluate."""
    for _ in training(config, pool, images_on(pool, device), folder, device, meter):
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


def cost(config: FleetConfig) -> int:
    """Images the fleet encodes in training, over all its runs: the unit of the progress bar."""
    return len(config.members) * config.shape.images * config.recipe.updates


def draw_chunks(
    config: FleetConfig, pool: ImagePool, step: int, bring_images: bool
) -> Iterator[Chunk]:
    """The episodes from update `step` on, up to CHUNK at a time, every run from its own stream."""
    recipe, shape = config.recipe, config.shape
    seeds = [member.split_seed for member in config.members]
    splits = {
        seed: labeled_split(pool.of_split("train"), recipe.labeled_fraction, seed)
        for seed in dict.fromkeys(seeds)
    }
    most = CHUNK
    if bring_images:
        most = max(
            1, min(CHUNK, CHUNK_BYTES // (len(seeds) * shape.images * pool.images[0].nbytes))
        )
    while step < recipe.updates:
        count = min(most, CHUNK - step % CHUNK, recipe.updates - step)
        episodes = {
            seed: sample_episodes(split, shape, seed, "train", step, count).images
            for seed, split in splits.items()
        }
        images = np.stack([episodes[seed] for seed in seeds], axis=1)  # (E, R, B)
        maps = pixels = None
        if recipe.augment or recipe.mirror:
            drawn = {
                seed: sample_maps(
                    recipe.augment, seed, "train", step, count, shape.images, recipe.mirror
                )
                for seed in splits
            }
            maps = torch.from_numpy(np.stack([drawn[seed] for seed in seeds], axis=1))
        if bring_images:
            places, within = np.unique(images, return_inverse=True)
            images, pixels = within.reshape(images.shape), pixels_of(pool, places)
        rates = [learning_rate(recipe, step + e) for e in range(count)]
        yield Chunk(torch.from_numpy(images), maps, rates, pixels)
        step += count


def pixels_of(pool: ImagePool, places: Indices) -> Tensor:
    """(I, C, H, W), in memory from which a GPU can fetch them while others work."""
    shape = (len(places), *pool.images.shape[1:])
    pixels = torch.empty(shape, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    gather(pool.images, places, pixels.numpy())
    return pixels


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
    step, checkpoint = 0, folder / "state.pt"
    if checkpoint.exists():
        try:
            state = torch.load(checkpoint, map_location=device, weights_only=True)
            model.load_state_dict(state["model"])
            groups = optimizer.state_dict()["param_groups"]  # as this device wants them
            optimizer.load_state_dict({**state["optimizer"], "param_groups": groups})
            step = state["step"]
        except (RuntimeError, EOFError, KeyError, TypeError, ValueError, UnpicklingError) as error:
            raise InputError(
                f"{checkpoint} is damaged ({type(error).__name__}); delete it to train from the start"
            ) from error
    cut_log(folder, step)
    return model, optimizer, step


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


def read_config(path: Path) -> FleetConfig:
    try:
        return FleetConfig.from_json(path.read_text(encoding="utf-8"))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def save_state(folder: Path, model: ProtoNet, optimizer: torch.optim.Adam, step: int) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    write_whole(folder / "state.pt", lambda path: torch.save(state, path))


def save_model(
    path: Path, config: FleetConfig, model: ProtoNet, about: Mapping[str, str] | None = None
) -> None:
    tensors = {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}
    metadata = {"config": config.to_json(), **(about or {})}
    write_whole(path, lambda temporary: save_file(tensors, temporary, metadata))


def load_model(source: Path, device: torch.device) -> tuple[FleetConfig, ProtoNet]:
    """A trained fleet from its run folder or its file, ready to evaluate."""
    path = source if source.suffix == ".safetensors" else source / "model.safetensors"
    if not path.exists():
        raise InputError(
            f"no trained model in {source}: `semishot train` leaves model.safetensors there"
        )
    try:
        with safe_open(path, "pt") as file:
            config = FleetConfig.from_json((file.metadata() or {}).get("config", "{}"))
        tensors = load_file(path)
        channels = tensors["encoder.weights.0"].shape[2]
        model = build_fleet(config.members, config.recipe, channels)
        model.load_state_dict(tensors)
    except (SafetensorError, KeyError, RuntimeError) as error:
        raise InputError(f"{path} is damaged or no model of ours: {error}") from error
    return config, model.to(device).eval()


def append_log(folder: Path, step: int, rate: float, losses: list[float]) -> None:
    line = {"step": step, "learning_rate": rate, "loss": [round(loss, 5) for loss in losses]}
    with (folder / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def cut_log(folder: Path, step: int) -> None:
    """Drop the lines after `step`, and a line cut short by a kill: those updates are done again."""
    path = folder / "log.jsonl"
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except json.JSONDecodeError:
            break
    write_whole(path, lambda temporary: temporary.write_text("".join(kept), encoding="utf-8"))
