"""Batches of labeled images: epoch after epoch, drawn by address like episodes.

Letters: B images of a batch, I labeled images.
"""

from functools import lru_cache

import numpy as np

from semishot.data.pool import Indices
from semishot.data.splits import ClassImages, random_words, uniforms

BATCH = 100
"""As in the authors' code."""


def labeled_images(images: ClassImages) -> Indices:
    """(2, I): the labeled images of all classes, and the class of each."""
    label = np.repeat(np.arange(len(images.size)), images.size)
    rank = np.arange(len(images.order)) - images.start[label]  # within its class
    labeled = rank < images.labeled[label]
    return np.stack([images.order[labeled], label[labeled]])


def batch_places(images: int, seed: int, step: int, batch: int) -> Indices:
    """(B,), which labeled images update `step` takes: epoch after epoch, each in its own order."""
    position = np.arange(step * batch, (step + 1) * batch)
    orders = {
        epoch: epoch_order(images, seed, epoch) for epoch in set((position // images).tolist())
    }
    return np.array([orders[p // images][p % images] for p in position.tolist()])


@lru_cache(maxsize=64)  # an epoch of photographs has a hundred updates
def epoch_order(images: int, seed: int, epoch: int) -> Indices:
    return np.argsort(uniforms(random_words(seed, f"pre-training: epoch {epoch}", 0, images)))
