"""ProtoNet: encode an episode in one pass, refine its prototypes, score its queries.

Letters: R runs, B images, V views of an image, N classes, D embedding dimensions; S, U, Q support, unlabeled
and query images.
"""

from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from semishot import refine
from semishot.data.episodes import EpisodeShape
from semishot.network.encoder import ConvEncoder
from semishot.network.own_encoder import OwnEncoder
from semishot.network.sphere import Sphere
from semishot.prototypes import class_prototypes, episode_loss

if TYPE_CHECKING:
    from semishot.network.fused import Methods

__all__ = ["ProtoNet", "class_labels", "support_labels", "take_run", "warp"]


class ProtoNet(nn.Module):
    """A fleet of R Prototypical Networks; without a refiner they are supervised."""

    def __init__(
        self,
        encoder: ConvEncoder | OwnEncoder,
        refiner: nn.Module | None = None,
        steps: int = 1,
        sphere: Sphere | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.refiner, self.steps, self.sphere = encoder, refiner, steps, sphere
        self.initial_loss = 0.0
        """Weight of the loss with the prototypes of Eq. 1, beside that with the refined ones."""
        self.both_sides = False
        """At test, embeddings are means over an image and its mirror image."""
        self.moved = torch.empty(0, 2, 3)
        """Maps (V - 1, 2, 3): at test, embeddings are means over an image and what these make of it."""
        self.transductive = False
        """At test, the queries of an episode are among its unlabeled examples."""
        self.methods: Methods | None = None

    def refined_by(self, refiner: nn.Module | None, steps: int | None = None) -> "ProtoNet":
        """The same embeddings, refined by another method."""
        other = ProtoNet(self.encoder, refiner, steps or self.steps, self.sphere)
        other.both_sides, other.moved = self.both_sides, self.moved
        other.transductive = self.transductive
        return other.train(self.training)

    def embed(self, images: Tensor) -> Tensor:
        """uint8 (R, B, C, H, W) -> (R, B, D)."""
        embeddings = self.encode(images)
        return embeddings if self.sphere is None else self.sphere(embeddings)

    def encode(self, images: Tensor) -> Tensor:
        """The same, before they are put on a sphere."""
        embeddings: Tensor = self.encoder(images)
        if self.training:
            return embeddings
        others = [
            warp(images, m.to(images.device).expand(*images.shape[:2], 2, 3)) for m in self.moved
        ]
        if self.both_sides:
            others += [view.flip(-1) for view in (images, *others)]
        for view in others:
            embeddings = embeddings + self.encoder(view)
        return embeddings / (1 + len(others))

    def score(
        self, embeddings: Tensor, shape: EpisodeShape, present: Tensor | None = None
    ) -> Tensor:
        """Embedded episodes (R, ..., S + U + Q, D) -> log-probabilities (R, ..., Q, N).

        `present` (R, ..., U) says which unlabeled examples take part; None: all.
        """
        refiner = self.refiner
        support, unlabeled, query = torch.split(embeddings, list(shape.sizes), -2)
        labels = support_labels(shape, support).expand(*support.shape[:-1], shape.way)
        if self.transductive and not self.training:
            unlabeled = torch.cat([unlabeled, query], -2)
        prototypes = refine.refined_prototypes(
            refiner, support, labels, unlabeled, self.steps, present=present
        )  # (R, ..., N, D)
        if self.sphere is not None:
            prototypes = self.sphere.project(prototypes)
        return refine.query_log_probs(refiner, query, prototypes, unlabeled, support, labels)

    def forward(
        self, images: Tensor, shape: EpisodeShape, distractors: Tensor | None = None
    ) -> Tensor:
        """uint8 (R, S + U + Q, C, H, W) -> (R,), each run's episode loss.

        Support, unlabeled and query images are one batch, whose statistics batch norm shares.
        `distractors` (R,) says in which runs' episodes they take part; None: in all.
        """
        if self.training and self.encoder.fused and isinstance(self.encoder, ConvEncoder):
            maps = self.encoder.feature_maps(images)
            losses = self.fused_losses(maps, shape, distractors)
            if losses is not None:
                return losses
            embeddings = self.encoder.flattened(maps)
            embeddings = embeddings if self.sphere is None else self.sphere(embeddings)
        else:
            embeddings = self.embed(images)
        return self.losses(embeddings, shape, distractors)

    def losses(self, embeddings: Tensor, shape: EpisodeShape, distractors: Tensor | None) -> Tensor:
        """Embedded episodes (R, S + U + Q, D) -> (R,)."""
        present = None if distractors is None else present_images(shape, distractors)
        log_probs = self.score(embeddings, shape, present)  # (R, Q, N)
        labels = class_labels(shape, embeddings.device).expand(log_probs.shape[:-1])
        loss = episode_loss(log_probs, labels)
        if self.refiner is None:
            return loss
        if self.initial_loss:
            before = self.refined_by(None).score(embeddings, shape)
            loss = loss + self.initial_loss * episode_loss(before, labels)
        support, unlabeled, _ = torch.split(embeddings, list(shape.sizes), -2)
        initial = class_prototypes(support, support_labels(shape, support))
        extra = refine.extra_loss(self.refiner, unlabeled, initial)
        return loss if extra is None else loss + extra

    def fused_losses(
        self, maps: Tensor, shape: EpisodeShape, distractors: Tensor | None = None
    ) -> Tensor | None:
        """The same from the encoder's maps in a handful of kernels; None if a method or an episode is beyond
        them."""
        from semishot.network import fused  # needs Triton

        if self.methods is None:  # a tensor of its own, which no captured graph should make
            self.methods = fused.methods_of(self.refiner, self.encoder.runs, maps.device)
        _, unlabeled, queries = shape.sizes
        sizes = fused.Sizes(shape.way, shape.shot, unlabeled, queries)
        initial = self.initial_loss if self.refiner is not None else 0.0
        members = shape.way * shape.unlabeled
        plan = fused.plan_of(self.methods, sizes, self.steps, initial, members)
        if plan is None:
            return None
        return fused.episode_losses(maps, self.methods, plan, self.sphere, distractors)


def take_run(fleet: ProtoNet, run: int) -> ProtoNet:
    """One run of a fleet as a fleet of one."""
    encoder, refiner, place = fleet.encoder, fleet.refiner, run
    if isinstance(refiner, refine.SideBySide):
        refiner, place = refiner.of_run(run)
    alone = encoder.like(runs=1)
    alone.load_state_dict(_of_run(encoder, run))
    refiner = deepcopy(refiner)
    for parameter in refiner.parameters() if refiner is not None else ():
        parameter.data = parameter.data[place : place + 1].clone()
    sphere = None
    if fleet.sphere is not None:
        sphere = Sphere(1, fleet.sphere.center.shape[1])
        sphere.load_state_dict(_of_run(fleet.sphere, run))
    single = ProtoNet(alone, refiner, fleet.steps, sphere)
    single.initial_loss, single.both_sides = fleet.initial_loss, fleet.both_sides
    single.moved, single.transductive = fleet.moved, fleet.transductive
    return single.to(encoder.weights[0].device).eval()


def _of_run(module: nn.Module, run: int) -> dict[str, Tensor]:
    return {name: tensor[run : run + 1] for name, tensor in module.state_dict().items()}


def present_images(shape: EpisodeShape, distractors: Tensor) -> Tensor:
    """(R,) -> (R, U), 1 for the unlabeled images that take part: those of the classes, and distractors in
    episodes where they do."""
    of_classes = distractors.new_ones(len(distractors), shape.way * shape.unlabeled)
    others = distractors.unsqueeze(-1).expand(-1, shape.distractors * shape.unlabeled)
    return torch.cat([of_classes, others], -1)


def support_labels(shape: EpisodeShape, like: Tensor) -> Tensor:
    """(S, N), one-hot, of the type and on the device of `like`: support images come class by class."""
    one_hot = torch.eye(shape.way, dtype=like.dtype, device=like.device)
    return one_hot.repeat_interleave(shape.shot, 0)


def class_labels(shape: EpisodeShape, device: torch.device | str = "cpu") -> Tensor:
    """(Q,), the label of each query image: queries come class by class."""
    return torch.arange(shape.way, device=device).repeat_interleave(shape.query)


def warp(images: Tensor, maps: Tensor) -> Tensor:
    """uint8 images (R, B, C, H, W) transformed by maps (R, B, 2, 3), bilinear.

    Pixels from outside the image are zeros (paper) for one channel, the mirrored image for several.
    """
    flat = images.flatten(0, 1)
    grid = F.affine_grid(maps.flatten(0, 1), list(flat.shape), align_corners=False)
    outside = "zeros" if images.shape[2] == 1 else "reflection"
    moved = F.grid_sample(flat.float(), grid, padding_mode=outside, align_corners=False)
    return moved.round().to(torch.uint8).view_as(images)
