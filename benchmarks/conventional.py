"""The conventional way, written plainly: one network, one episode at a time, eager PyTorch.

Kind to itself: the images lie on the device as floats, and no loss is ever copied back.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from semishot import refine
from semishot.data.episodes import EpisodeShape


def conv4(channels: int, filters: int = 64) -> nn.Sequential:
    layers: list[nn.Module] = []
    for into in (channels, filters, filters, filters):
        layers += [
            nn.Conv2d(into, filters, 3, padding=1),
            nn.BatchNorm2d(filters),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    return nn.Sequential(*layers, nn.Flatten())


def episode_logits(
    encoder: nn.Module, refiner: nn.Module | None, images: Tensor, shape: EpisodeShape
) -> Tensor:
    """(S + U + Q, C, H, W) -> (Q, N); without a refiner, U is 0."""
    support, unlabeled, query = encoder(images).split(shape.sizes)
    prototypes = support.view(shape.way, shape.shot, -1).mean(1)  # (N, D)
    if refiner is not None:
        weights = refiner(unlabeled, prototypes)  # (U, N)
        total = support.view(shape.way, shape.shot, -1).sum(1) + weights.T @ unlabeled  # (N, D)
        prototypes = total / (shape.shot + weights.sum(0).unsqueeze(-1))
    return -torch.cdist(query, prototypes).square()


def eager_updates(
    refiner_name: str | None, shape: EpisodeShape, images: Tensor, updates: int
) -> Callable[[], None]:
    """A function that does some updates of one run, on float images (I, C, H, W)."""
    encoder = conv4(images.shape[1]).to(images.device)
    refiner = None if refiner_name is None else refine.build(refiner_name).to(images.device)
    modules = nn.ModuleList([encoder] if refiner is None else [encoder, refiner])

    def logits(episode: Tensor) -> Tensor:
        return episode_logits(encoder, refiner, episode, shape)

    return adam_updates(logits, modules, shape, images, updates)


def easyfsl_updates(shape: EpisodeShape, images: Tensor, updates: int) -> Callable[[], None]:
    """The same with easyfsl's Prototypical Network, which has no unlabeled images."""
    from easyfsl.methods import PrototypicalNetworks

    model = PrototypicalNetworks(conv4(images.shape[1])).to(images.device)
    support_labels = torch.arange(shape.way, device=images.device).repeat_interleave(shape.shot)

    def logits(episode: Tensor) -> Tensor:
        support, _, query = episode.split(shape.sizes)
        model.process_support_set(support, support_labels)
        return model(query)

    return adam_updates(logits, model, shape, images, updates)


def adam_updates(
    logits: Callable[[Tensor], Tensor],
    model: nn.Module,
    shape: EpisodeShape,
    images: Tensor,
    updates: int,
) -> Callable[[], None]:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    labels = torch.arange(shape.way, device=images.device).repeat_interleave(shape.query)
    episodes = random_episodes(len(images), updates, shape).to(images.device)  # (E, B)

    def run() -> None:
        for episode in episodes:
            loss = F.cross_entropy(logits(images[episode]), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return run


def random_episodes(images: int, updates: int, shape: EpisodeShape) -> Tensor:
    """(E, B) indices of a pool of random images, on which every episode costs the same."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(images, (updates, shape.images), generator=generator)
