"""One episode seen through a trained model, or through its bare pixels, for the pictures.

Letters: N classes, H distractor classes, K support, M unlabeled, Q query images per class, D dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from semishot import datasets, refine
from semishot.data.episodes import check_enough
from semishot.data.pool import ImagePool
from semishot.data.splits import all_labeled
from semishot.errors import InputError
from semishot.network.protonet import ProtoNet, support_labels, take_run
from semishot.paper.published import title
from semishot.paper.requests import EpisodeRequest
from semishot.prototypes import class_log_probs, class_prototypes
from semishot.training.evaluation import open_fleet
from semishot.training.examples import streams_of
from semishot.training.fleets import find_model

PIXELS = "pixels"
Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class ViewedEpisode:
    """One episode and a model's results on it, as plain arrays."""

    title: str
    support: Bytes
    """(N, K, C, H, W)"""
    unlabeled: Bytes
    """(N + H, M, C, H, W); the last H rows are the distractors."""
    query: Bytes
    """(N, Q, C, H, W)"""
    before: NDArray[np.int64]
    """(N, Q), the class predicted for each query with the prototypes of Eq. 1."""
    after: NDArray[np.int64]
    """(N, Q), with the refined ones."""
    weights: Floats
    """(N + H, M), how much of each unlabeled image the refinement uses: the mask, for Masked."""
    points: Sequence[Floats]
    """Embeddings (N, K, D), (N + H, M, D), (N, Q, D)."""
    prototypes: tuple[Floats, Floats]
    """Before and after, (N, D) each."""


@torch.inference_mode()
def view_episode(request: EpisodeRequest, root: Path | None = None) -> ViewedEpisode:
    """The episode seen through one run of a fleet or, if the model is `pixels`, without any encoder
    or refinement."""
    model, pool, name = open_run(request, root)
    shape, episode = request.shape, request.episode
    images = all_labeled(pool.of_split("test"))
    check_enough(images, shape)
    drawn = pool.images[streams_of(images, [request.seed], shape).draw(episode, 1)[0, 0]]
    batch = torch.from_numpy(drawn)  # (B, C, H, W)
    points = batch.flatten(1) / 255 if model is None else model.embed(batch[None])[0]  # (B, D)
    embedded = torch.split(points, list(shape.sizes))
    support, unlabeled, query = embedded  # (S, D), (U, D), (Q, D)
    labels = support_labels(shape, support)  # (S, N)
    before = after = class_prototypes(support, labels)  # (N, D)
    weights = support.new_ones(len(unlabeled))
    if model is not None and model.refiner is not None and len(unlabeled):
        inputs = support[None], labels[None], unlabeled[None]  # one run: a leading axis of 1
        after = refine.refined_prototypes(model.refiner, *inputs, model.steps)[0]
        weights = refine.weights_of(
            model.refiner, unlabeled[None], before[None], support[None], labels[None]
        )[0].sum(-1)  # (U,)
    n, h = shape.way, shape.distractors
    grid = ((n, shape.shot), (n + h, shape.unlabeled), (n, shape.query))
    predicted = [class_log_probs(query, p).argmax(-1).numpy() for p in (before, after)]

    def by_class(parts: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        return [part.reshape(*g, *part.shape[1:]) for part, g in zip(parts, grid, strict=True)]

    seen = by_class(np.split(drawn, np.cumsum(shape.sizes)[:2]))
    return ViewedEpisode(
        title=f"{pool.name}, {name}",
        support=seen[0],
        unlabeled=seen[1],
        query=seen[2],
        before=predicted[0].reshape(grid[2]),
        after=predicted[1].reshape(grid[2]),
        weights=weights.double().numpy().reshape(grid[1]),
        points=by_class([part.double().numpy() for part in embedded]),
        prototypes=(before.double().numpy(), after.double().numpy()),
    )


def open_run(request: EpisodeRequest, root: Path | None) -> tuple[ProtoNet | None, ImagePool, str]:
    """One run of a trained fleet, its data, and what to call it."""
    source, dataset, run = request.model, request.dataset, request.run
    if source == PIXELS:
        if dataset is None:
            raise InputError("--model pixels needs --dataset")
        return None, datasets.load(dataset, root), "nearest prototype in pixels"
    if dataset is not None:
        raise InputError("a trained model brings its own data set; drop --dataset")
    for method in request.allow:
        refine.add(method)
    config, fleet, pool = open_fleet(find_model(source), root, torch.device("cpu"))
    if not 0 <= run < len(config.members):
        raise InputError(f"{source} has runs 0 to {len(config.members) - 1}, not {run}")
    return take_run(fleet, run), pool, title(config.members[run].model)
