"""ProtoNet: encode an episode in one pass, refine its prototypes, score its queries.

Letters: R runs, B images, N classes, D embedding dimensions; S, U, Q support, unlabeled, query images.
"""

from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from semishot import refine
from semishot.data.episodes import EpisodeShape
from semishot.network.encoder import ConvEncoder
from semishot.prototypes import episode_loss

if TYPE_CHECKING:
    from semishot.network.fused import Methods

__all__ = ["ProtoNet", "class_labels", "support_labels", "take_run"]


class ProtoNet(nn.Module):
    """A fleet of R Prototypical Networks; without a refiner they are supervised."""

    def __init__(
        self, encoder: ConvEncoder, refiner: nn.Module | None = None, steps: int = 1
    ) -> None:
        super().__init__()
        self.encoder, self.refiner, self.steps = encoder, refiner, steps
        self.methods: Methods | None = None

    def embed(self, images: Tensor) -> Tensor:
        """uint8 (R, B, C, H, W) -> (R, B, D)."""
        embeddings: Tensor = self.encoder(images)
        return embeddings

    def score(self, embeddings: Tensor, shape: EpisodeShape) -> Tensor:
        """Embedded episodes (R, ..., S + U + Q, D) -> log-probabilities (R, ..., Q, N)."""
        support, unlabeled, query = torch.split(embeddings, list(shape.sizes), -2)
        labels = support_labels(shape, support).expand(*support.shape[:-1], shape.way)
        prototypes = refine.refined_prototypes(
            self.refiner, support, labels, unlabeled, self.steps
        )  # (R, ..., N, D)
        return refine.query_log_probs(self.refiner, query, prototypes, unlabeled, support, labels)

    def forward(self, images: Tensor, shape: EpisodeShape) -> Tensor:
        """uint8 (R, S + U + Q, C, H, W) -> (R,), each run's episode loss.

        Support, unlabeled and query images are one batch, whose statistics batch norm shares.
        """
        if self.training and self.encoder.fused:
            losses = self.fused_losses(images, shape)
            if losses is not None:
                return losses
        log_probs = self.score(self.embed(images), shape)  # (R, Q, N)
        labels = class_labels(shape, images.device).expand(log_probs.shape[:-1])
        return episode_loss(log_probs, labels)

    def fused_losses(self, images: Tensor, shape: EpisodeShape) -> Tensor | None:
        """The same in a handful of kernels; None if a refiner or an episode is beyond them."""
        from semishot.network import fused  # needs Triton

        if self.methods is None:  # a tensor of its own, which no captured graph should make
            device = self.encoder.weights[0].device
            self.methods = fused.methods_of(self.refiner, self.encoder.runs, device)
        _, unlabeled, queries = shape.sizes
        sizes = fused.Sizes(shape.way, shape.shot, unlabeled, queries)
        if self.steps > 1 or self.methods.settings is None or not sizes.fit(self.encoder.filters):
            return None
        return fused.episode_losses(self.encoder.feature_maps(images), self.methods, sizes)


def take_run(fleet: ProtoNet, run: int) -> ProtoNet:
    """One run of a fleet as a fleet of one."""
    encoder, refiner, place = fleet.encoder, fleet.refiner, run
    if isinstance(refiner, refine.SideBySide):
        refiner, place = refiner.of_run(run)
    alone = ConvEncoder(encoder.channels, encoder.filters, 1, encoder.init_std)
    alone.load_state_dict({name: t[run : run + 1] for name, t in encoder.state_dict().items()})
    refiner = deepcopy(refiner)
    for parameter in refiner.parameters() if refiner is not None else ():
        parameter.data = parameter.data[place : place + 1].clone()
    return ProtoNet(alone.to(encoder.weights[0].device), refiner, fleet.steps).eval()


def support_labels(shape: EpisodeShape, like: Tensor) -> Tensor:
    """(S, N), one-hot, of the type and on the device of `like`: support images come class by class."""
    one_hot = torch.eye(shape.way, dtype=like.dtype, device=like.device)
    return one_hot.repeat_interleave(shape.shot, 0)


def class_labels(shape: EpisodeShape, device: torch.device | str = "cpu") -> Tensor:
    """(Q,), the label of each query image: queries come class by class."""
    return torch.arange(shape.way, device=device).repeat_interleave(shape.query)
