"""Which refinement method each run of a fleet uses, as the kernels of `episode.py` read it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from semishot.network.fused.shares import CLUSTER, MASKED, SOFT_KMEANS, SUPERVISED
from semishot.refine import SideBySide, distractor_cluster, masked_soft_kmeans, soft_kmeans


@dataclass(frozen=True)
class Methods:
    settings: Tensor | None
    """(R, 5) in int32; `shares.py` says what they are. None if the kernels do not know a run's method."""
    clusters: Sequence[distractor_cluster.Refiner] = ()
    masks: Sequence[masked_soft_kmeans.Refiner] = ()

    @property
    def flags(self) -> tuple[bool, bool]:
        """Whether any run has a distractor cluster, and a mask."""
        return bool(self.clusters), bool(self.masks)

    def parameters(self) -> tuple[Tensor, ...]:
        """log r (R,), and the mask's weights and biases, of all runs that have them."""
        radii = [refiner.log_radius for refiner in self.clusters]
        names = "hidden_weight", "hidden_bias", "output_weight", "output_bias"
        weights = [[getattr(refiner, name) for refiner in self.masks] for name in names]
        return tuple(self._joined(parts) for parts in (radii, *weights))

    def _joined(self, parts: Sequence[Tensor]) -> Tensor:
        if not parts:
            assert self.settings is not None
            return self.settings  # not read, but a kernel needs some address
        return torch.cat(list(parts)) if len(parts) > 1 else parts[0]


def methods_of(refiner: nn.Module | None, runs: int, device: torch.device) -> Methods:
    """Of a fleet's refiner: None if it is supervised, or several side by side."""
    refiners: list[nn.Module | None] = [refiner]
    counts = [runs]
    if isinstance(refiner, SideBySide):
        refiners, counts = list(refiner.refiners), refiner.counts
    clusters: list[distractor_cluster.Refiner] = []
    masks: list[masked_soft_kmeans.Refiner] = []
    places = {CLUSTER: 0, MASKED: 0}
    settings: list[list[int]] = []
    for each, count in zip(refiners, counts, strict=True):
        kind, divisor, power, stopped = SUPERVISED, 1, 1, 0
        if type(each) is soft_kmeans.Refiner:
            kind, stopped = SOFT_KMEANS, int(each.detach_assignments)
        elif type(each) is distractor_cluster.Refiner and not hasattr(each, "query_log_probs"):
            kind, divisor = CLUSTER, int(each.scale)
            clusters.append(each)
        elif type(each) is masked_soft_kmeans.Refiner:
            kind, power = MASKED, each.mask_power
            masks.append(each)
        elif each is not None:
            return Methods(None)
        first = places.get(kind, 0)
        settings += [[kind, first + run, divisor, power, stopped] for run in range(count)]
        places[kind] = first + count
    return Methods(torch.tensor(settings, dtype=torch.int32, device=device), clusters, masks)
