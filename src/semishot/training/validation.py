"""Accuracy on a few fixed validation episodes while a fleet trains, and its predictions on the first.

Letters: R runs, E episodes, I images, B images of an episode, S, U, Q its support, unlabeled and query
images, N classes, D embedding dimensions.
"""

import sys
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import torch
from torch import Tensor

from semishot.data.episodes import EpisodeShape, check_enough
from semishot.data.pool import ImagePool
from semishot.data.splits import all_labeled
from semishot.errors import InputError
from semishot.network.protonet import ProtoNet, class_labels, support_labels
from semishot.prototypes import class_prototypes, squared_distances
from semishot.refine import SideBySide, masked_soft_kmeans
from semishot.training.config import FleetConfig
from semishot.training.examples import streams_of

TIMES = 10
"""The most validations in a training."""
SHARE = 0.05
"""The most images embedded for validation, as a share of those trained on. Without a backward pass they
take a third of that share of the time, and far less in a training of full length."""
CLASSES, IMAGES = 20, 15
"""Validation classes, and images of each; more only if an episode needs more."""
EPISODES, TOGETHER = 20, 10
"""Episodes in a validation, and how many are scored at a time."""
AT_ONCE = 50
"""Images embedded at a time, or as many as in an update: few enough to fit, enough to be fast."""
QUERY = 5
STREAM = "validation while training"


@dataclass(frozen=True)
class Seen:
    """The predictions of a fleet on the episodes."""

    accuracy: list[float]
    """The accuracy of each run."""
    masks: dict[int, Tensor]
    """(E, U) for each Masked run: the largest mask of each unlabeled image over the classes."""
    predicted: Tensor
    """(R, Q), the class of each query of the first episode."""


@dataclass(frozen=True)
class Validation:
    """The same episodes each time and for every run, shaped as in training except for the queries, and with
    fewer classes if there are not as many."""

    shape: EpisodeShape
    every: int
    """Updates from one validation to the next; the last update has one too."""
    pixels: Tensor
    """uint8 (I, C, H, W), on the device."""
    places: Tensor
    """(E, B), which of these images make up each episode."""
    at_once: int

    @torch.inference_mode()
    def look(self, model: ProtoNet) -> Seen:
        """Uses the moving averages, as at test. The model is unchanged, and no random numbers are drawn."""
        training, runs = model.training, model.encoder.runs
        model.eval()
        batches = self.pixels.split(self.at_once)
        embeddings = torch.cat([model.embed(b.expand(runs, *b.shape)) for b in batches], 1)
        predicted = torch.cat(
            [
                model.score(embeddings[:, places], self.shape).argmax(-1)
                for places in self.places.split(TOGETHER)
            ],
            1,
        )  # (R, E, Q)
        masks = self._masks(model, embeddings[:, self.places[:TOGETHER]])
        model.train(training)
        right = predicted == class_labels(self.shape, predicted.device)
        accuracy = right.double().mean((1, 2)).tolist()
        return Seen(accuracy, masks, predicted[:, 0].cpu())

    def _masks(self, model: ProtoNet, episodes: Tensor) -> dict[int, Tensor]:
        """Eq. 9 on embedded episodes (R, E, B, D), at the first step of refinement."""
        beside = model.refiner if isinstance(model.refiner, SideBySide) else None
        refiners = beside.refiners if beside else [model.refiner]
        counts = beside.counts if beside else [len(episodes)]
        support, unlabeled, _ = episodes.split(list(self.shape.sizes), -2)
        prototypes = class_prototypes(support, support_labels(self.shape, support))  # (R, E, N, D)
        distances = squared_distances(unlabeled, prototypes).split(counts)  # (R, E, U, N)
        found, run = {}, 0
        for refiner, d in zip(refiners, distances, strict=True):
            if isinstance(refiner, masked_soft_kmeans.Refiner) and self.shape.unlabeled:
                masks = refiner.mask_of(d).amax(-1).cpu()  # (R, E, U)
                found.update({run + own: mask for own, mask in enumerate(masks)})
            run += len(d)
        return found


def of_classes(shape: EpisodeShape, count: int) -> EpisodeShape:
    """With at most so many classes, in about the same proportion; two are the least to tell apart."""
    wanted = shape.way + shape.distractors
    if count >= wanted or count < 2:
        return shape
    way = max(2, shape.way * count // wanted)
    return replace(shape, way=way, distractors=count - way if shape.distractors else 0)


def fixed_episodes(
    config: FleetConfig, pool: ImagePool, device: torch.device, every: int
) -> Validation | None:
    """The validation episodes of a training whose log has a line every `every` updates; None, with a
    warning, if the pool has too few images. Classes are drawn across groups, even if training is within one.
    """
    shape = replace(config.shape, query=QUERY, within_group=False)
    try:
        classes = pool.of_split("val")
        shape = of_classes(shape, len(classes))
        count = min(len(classes), max(CLASSES, shape.way + shape.distractors))
        most = max(IMAGES, shape.shot + shape.unlabeled + shape.query)
        spread = [classes[i] for i in np.linspace(0, len(classes) - 1, count).astype(int)]
        images = all_labeled([replace(c, count=min(c.count, most)) for c in spread])
        check_enough(images, shape, advice="the training is not affected")
    except InputError as error:
        print(f"no accuracy on validation episodes while training: {error}", file=sys.stderr)
        return None
    drawn = streams_of(images, [0], shape, STREAM).draw(0, EPISODES)[0]  # (E, B)
    used, places = np.unique(drawn, return_inverse=True)
    seldom = max(config.recipe.updates / TIMES, len(used) / (SHARE * config.shape.images))
    return Validation(
        shape=shape,
        every=every * ceil(seldom / every),
        pixels=torch.from_numpy(pool.images[used]).to(device),
        places=torch.from_numpy(places.reshape(drawn.shape)).to(device),
        at_once=max(config.shape.images, AT_ONCE),
    )
