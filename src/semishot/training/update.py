"""One update of R runs: run step by step, or captured once as a CUDA graph and replayed."""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TypeGuard

import torch
from torch import Tensor, nn

from semishot.data.episodes import EpisodeShape
from semishot.network.classifier import LinearClassifier, TurnedClassifier
from semishot.network.own_encoder import OwnEncoder
from semishot.network.protonet import ProtoNet, warp


@dataclass(frozen=True)
class Chunk:
    """The images of E updates, and their learning rates."""

    images: Tensor
    """(E, R, B) indices into the pool, or into `pixels`."""
    maps: Tensor | None = None
    """(E, R, B, 2, 3), an affine map for each image, if the recipe augments."""
    rates: Sequence[float] = ()
    shares_done: Sequence[float] = ()
    """Of the updates of the training, before each of these."""
    pixels: Tensor | None = None
    """(I, C, H, W), the images of this chunk alone, if the device does not hold the pool."""
    labels: Tensor | None = None
    """(E, R, B), the class of each image, if a classifier is trained."""
    distractors: Tensor | None = None
    """(E, R), 1 where the distractors of an episode take part and 0 elsewhere; None: everywhere."""

    def __len__(self) -> int:
        return len(self.rates)

    @property
    def beside(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """What belongs to each update beside its images."""
        return self.maps, self.labels, self.distractors


RunChunk = Callable[[Chunk], Callable[[], Tensor]]
"""Starts the chunk's updates; call the result to wait for their losses, (E, R)."""

WARM_UPS = 3


def deterministic_cudnn() -> AbstractContextManager[None]:
    """Let cuDNN choose algorithms by rule, not by timing, which would make a resumed run differ."""
    rule: AbstractContextManager[None] = torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True
    )
    return rule


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def shares_done_of(model: nn.Module) -> list[Tensor]:
    """Where methods look up the share of the updates that are done."""
    return [tensor for name, tensor in model.named_buffers() if name.endswith("share_done")]


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    images: Tensor,
    maps: Tensor | None,
    *target: EpisodeShape | Tensor | None,
) -> Tensor:
    """The update itself, on uint8 images (R, B, C, H, W): each run's loss (R,), and a step of Adam or SGD.

    `target` is what the model is given beside the images: the shape of the episodes, and (R,) in which
    of them distractors take part, if not in all; for a classifier the class (R, B) of each image.
    """
    given = [each for each in target if each is not None]
    loss: Tensor = model(images if maps is None else warp(images, maps), *given)
    optimizer.zero_grad()
    loss.sum().backward()  # the runs share no parameter: the sum trains each on its own
    optimizer.step()
    return loss.detach()


def plain_chunk(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    pool: Tensor | None,
    shape: EpisodeShape | None = None,
) -> RunChunk:
    """`pool` are the pool's images on the device, None if chunks include their own; without a shape,
    chunks include labels."""
    device, told = next(model.parameters()).device, shares_done_of(model)

    def run(chunk: Chunk) -> Callable[[], Tensor]:
        source = pool if chunk.pixels is None else chunk.pixels.to(device)
        assert source is not None
        images = chunk.images.to(device)
        rest = [None if values is None else values.to(device) for values in chunk.beside]
        losses = []
        with deterministic_cudnn():
            for e, rate in enumerate(chunk.rates):
                set_learning_rate(optimizer, rate)
                for share_done in told:
                    share_done.fill_(chunk.shares_done[e])
                maps, *target = (None if values is None else values[e] for values in rest)
                losses.append(update(model, optimizer, source[images[e]], maps, shape, *target))
        return lambda: torch.stack(losses)

    return run


def captured_chunk(
    model: ProtoNet | TurnedClassifier,
    optimizer: torch.optim.Optimizer,
    pool: Tensor | None,
    shape: EpisodeShape | None,
    first: Chunk,
) -> RunChunk:
    """Like `plain_chunk`, for chunks no longer than the first: Python only replays one graph."""
    device = model.encoder.weights[0].device
    images = first.images.to(device)  # (E, R, B)
    rest = [None if values is None else values.to(device) for values in first.beside]
    losses = torch.zeros(images.shape[:2], device=device)
    cursor = torch.zeros(1, dtype=torch.int64, device=device)
    if first.pixels is None:
        assert pool is not None
        source = pool
    else:  # room for a chunk in which no image is repeated
        source = torch.empty(
            images.numel(), *first.pixels.shape[1:], dtype=torch.uint8, device=device
        )
        source[: len(first.pixels)].copy_(first.pixels)

    def next_update() -> None:
        chosen = images.index_select(0, cursor).squeeze(0)  # (R, B)
        maps, *target = (
            None if values is None else values.index_select(0, cursor).squeeze(0) for values in rest
        )
        loss = update(model, optimizer, source[chosen], maps, shape, *target)
        losses.index_copy_(0, cursor, loss.unsqueeze(0))
        cursor.add_(1).remainder_(len(losses))

    before = {name: tensor.clone() for name, tensor in _tensors(model, optimizer).items()}
    told = shares_done_of(model)
    stream = torch.cuda.Stream(device)  # fleets side by side fill each other's gaps
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize(device)
    with torch.cuda.stream(stream), deterministic_cudnn():
        with _compiled_ahead(model):
            next_update()
        for _ in range(WARM_UPS):  # libraries choose their algorithms before the capture
            next_update()
        _restore(model, optimizer, before)
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph, stream=stream):
            next_update()

    def send(values: Tensor | None, to: Tensor | None) -> None:
        """Copy from pinned memory in the stream's order, without making Python or running work wait."""
        if values is not None and to is not None:
            to[: len(values)].copy_(values.pin_memory(), non_blocking=True)

    def run(chunk: Chunk, _alive: object = (model, optimizer)) -> Callable[[], Tensor]:
        """Keeps the fleet alive: the captured graph points into its tensors."""
        count, last = len(chunk), None
        with torch.cuda.stream(stream):
            send(chunk.images, images)
            for values, to in zip(chunk.beside, rest, strict=True):
                send(values, to)
            send(chunk.pixels, source)
            cursor.zero_()
            for e, rate in enumerate(chunk.rates):
                if rate != last:
                    set_learning_rate(optimizer, rate)
                    last = rate
                for share_done in told:
                    share_done.fill_(chunk.shares_done[e])
                graph.replay()

        def finished() -> Tensor:
            stream.synchronize()
            return losses[:count]

        return finished

    return run


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


Model = ProtoNet | LinearClassifier | TurnedClassifier
"""What can be trained: episodes, or classification first."""


def chunk_runner(
    model: Model,
    optimizer: torch.optim.Optimizer,
    images: Tensor | None,
    shape: EpisodeShape | None,
    first: Chunk,
) -> RunChunk:
    """Captured and replayed on CUDA if the model allows it; without a shape, chunks include labels."""
    if not is_captured(model):
        return plain_chunk(model, optimizer, images, shape)
    return captured_chunk(model, optimizer, images, shape, first)


def is_captured(model: Model) -> TypeGuard[ProtoNet | TurnedClassifier]:
    """Whether updates are captured in a CUDA graph: the classifiers of Table 5 are not."""
    captured = model.encoder.weights[0].device.type == "cuda"
    own = isinstance(model.encoder, OwnEncoder)
    return captured and not own and not isinstance(model, LinearClassifier)


def _compiled_ahead(model: ProtoNet | TurnedClassifier) -> AbstractContextManager[None]:
    """In which a first update only notes its kernels, so that they can be compiled side by side."""
    if not model.encoder.fused:
        return nullcontext()
    from semishot.network.fused import compiled_ahead  # needs Triton

    return compiled_ahead()


def _tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[object, Tensor]:
    """Everything an update changes, by name or by parameter and kind of optimizer state."""
    tensors: dict[object, Tensor] = dict(model.state_dict().items())
    for parameter, state in optimizer.state.items():
        tensors.update(((parameter, kind), value) for kind, value in state.items())
    return tensors


@torch.no_grad()
def _restore(
    model: nn.Module, optimizer: torch.optim.Optimizer, before: dict[object, Tensor]
) -> None:
    """Restore in place: the graph uses these tensors. Optimizer state that is not in `before` was zero."""
    for name, tensor in _tensors(model, optimizer).items():
        tensor.copy_(before[name]) if name in before else tensor.zero_()
