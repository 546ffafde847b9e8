"""The conventional way, written plainly: one network, one episode at a time, eager PyTorch.

Kind to itself: the images lie on the device as floats, and no loss is ever copied back.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from semishot import refine
from semishot.data.episodes import EpisodeShape

CARRIED = Path(__file__).parents[1] / "carry" / "easyfsl"
"""Where easyfsl may lie on a machine that cannot install it."""


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
    device = images.device
    encoder = conv4(images.shape[1]).to(device)
    refiner = None if refiner_name is None else refine.build(refiner_name).to(device)
    modules = nn.ModuleList([encoder] if refiner is None else [encoder, refiner])
    optimizer = torch.optim.Adam(modules.parameters(), lr=1e-3)
    labels = torch.arange(shape.way, device=device).repeat_interleave(shape.query)
    episodes = random_episodes(len(images), updates, shape).to(device)  # (E, B)

    def run() -> None:
        for episode in episodes:
            logits = episode_logits(encoder, refiner, images[episode], shape)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return run


def easyfsl_updates(shape: EpisodeShape, images: Tensor, updates: int) -> Callable[[], None]:
    """The same with easyfsl's Prototypical Network, which has no unlabeled images."""
    device = images.device
    model = load_easyfsl().PrototypicalNetworks(conv4(images.shape[1])).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    support_labels = torch.arange(shape.way, device=device).repeat_interleave(shape.shot)
    query_labels = torch.arange(shape.way, device=device).repeat_interleave(shape.query)
    episodes = random_episodes(len(images), updates, shape).to(device)

    def run() -> None:
        for episode in episodes:
            support, _, query = images[episode].split(shape.sizes)
            optimizer.zero_grad()
            model.process_support_set(support, support_labels)
            loss = F.cross_entropy(model(query), query_labels)
            loss.backward()
            optimizer.step()

    return run


def load_easyfsl() -> ModuleType:
    """Its file of Prototypical Networks, as published.

    `easyfsl.methods` also loads its ResNets and with them torchvision, which is not needed here.
    """
    sys.path.append(str(CARRIED))
    import easyfsl

    methods = ModuleType("easyfsl.methods")
    methods.__path__ = [str(Path(easyfsl.__file__).parent / "methods")]
    sys.modules.setdefault("easyfsl.methods", methods)
    import easyfsl.methods.prototypical_networks as found

    return found


def random_episodes(images: int, updates: int, shape: EpisodeShape) -> Tensor:
    """(E, B) places in a pool of random images, on which every episode costs the same."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(images, (updates, shape.images), generator=generator)
