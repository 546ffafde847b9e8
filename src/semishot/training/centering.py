"""The centers of a fleet's spheres: the mean embedding of each run's labeled training images, as at test.

Letters: R runs, I images, D embedding dimensions.
"""

import numpy as np
import torch

from semishot.data.pool import ImagePool, Indices
from semishot.data.splits import labeled_split
from semishot.network.protonet import ProtoNet
from semishot.training.config import FleetConfig

MOST_OF_A_CLASS = 30
"""Images of each training class."""
ENOUGH = 2_000
"""Of twice as many images, every second is taken."""
AT_ONCE = 64
"""Images of a run embedded at a time."""


@torch.no_grad()
def center(fleet: ProtoNet, config: FleetConfig, pool: ImagePool) -> None:
    """Move the centers there. The moving averages of batch norm are used, and nothing else is changed."""
    assert fleet.sphere is not None
    training, device = fleet.training, fleet.sphere.center.device
    fleet.eval()
    fraction = config.recipe.labeled_fraction
    chosen = {m.split_seed: _some_of_each(pool, fraction, m.split_seed) for m in config.members}
    rows = np.stack([chosen[member.split_seed] for member in config.members])  # (R, I)
    total = torch.zeros_like(fleet.sphere.center)
    for first in range(0, rows.shape[1], AT_ONCE):
        images = torch.from_numpy(pool.images[rows[:, first : first + AT_ONCE]]).to(device)
        total += fleet.encode(images).sum(1)  # (R, D)
    fleet.sphere.center.copy_(total / rows.shape[1])
    fleet.train(training)


def _some_of_each(pool: ImagePool, fraction: float, seed: int) -> Indices:
    """(I,): the first labeled images of each class, or some of them if there are very many classes."""
    split = labeled_split(pool.of_split("train"), fraction, seed)
    rank = np.arange(len(split.order)) - np.repeat(split.start, split.size)  # within its class
    most = np.repeat(np.minimum(split.labeled, MOST_OF_A_CLASS), split.size)
    found = split.order[rank < most]
    return found[:: max(1, len(found) // ENOUGH)]
