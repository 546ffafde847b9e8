"""Which refinement method each run of a fleet uses, as the kernels read it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from semishot.network.fused import shares
from semishot.refine import (
    SideBySide,
    cosine_kmeans,
    distractor_cluster,
    fitted_mask,
    masked_soft_kmeans,
    oslo,
    prwn,
    soft_kmeans,
)

PARAMETERS = {
    shares.CLUSTER: ("log_radius",),
    shares.MASKED: ("hidden_weight", "hidden_bias", "output_weight", "output_bias"),
    shares.COSINE: ("slow_log_scale", "slow_threshold"),
}
"""Of the refiners that have any, in the order in which kernels have them."""
PARTS = {
    shares.CLUSTER: shares.WITH_CLUSTER.value,
    shares.MASKED: shares.WITH_MASK.value,
    shares.FITTED: shares.WITH_FIT.value,
    shares.COSINE: shares.WITH_COSINES.value,
}


@dataclass(frozen=True)
class Methods:
    settings: Tensor | None
    """(R, 6) in int32; `shares.py` says what they are. None if the kernels do not know a run's method."""
    kinds: frozenset[int] = frozenset()
    refiners: Sequence[tuple[int, nn.Module]] = ()
    """With their kinds, those that have parameters."""
    scored: bool = False
    """Whether the queries of any run are scored over one more cluster."""
    on_directions: Sequence[tuple[int, int, oslo.Refiner]] = ()
    """The first run and the number of runs of each such method."""
    walks: Tensor | None = None
    """(R,): the weight of the loss of random walks, if any run has one."""

    @property
    def parts(self) -> int:
        """Those of `shares.py` that the runs need, as a sum."""
        return sum(PARTS.get(kind, 0) for kind in self.kinds)

    @property
    def by_rows(self) -> bool:
        """Whether an unlabeled image's weights do not depend on the others."""
        return not self.kinds & {shares.MASKED, shares.FITTED}

    def parameters(self) -> tuple[Tensor, ...]:
        """All that have a name in `PARAMETERS`, each of all runs that have it."""
        found = []
        for kind, names in PARAMETERS.items():
            of_kind = [refiner for each, refiner in self.refiners if each == kind]
            found += [self._joined([getattr(r, name) for r in of_kind]) for name in names]
        return tuple(found)

    def _joined(self, parts: Sequence[Tensor]) -> Tensor:
        if not parts:
            assert self.settings is not None
            return self.settings  # not read, but a kernel needs some address
        return torch.cat(list(parts)) if len(parts) > 1 else parts[0]


@dataclass(frozen=True)
class Setting:
    """What a run's row of settings says, beside its place among the parameters."""

    kind: int = shares.SUPERVISED
    divisor: int = 1
    power: int = 1
    stopped: int = 0
    scored: int = 0


def setting_of(refiner: nn.Module | None) -> Setting | None:
    """None if kernels do not know the method, or its options."""
    if getattr(refiner, "mask_power", 1) % 1:
        return None
    if refiner is None or type(refiner) in (prwn.Refiner, oslo.Refiner):
        return Setting()
    if type(refiner) is soft_kmeans.Refiner:
        return Setting(shares.SOFT_KMEANS, stopped=int(bool(refiner.detach_assignments)))
    if type(refiner) is distractor_cluster.Refiner:
        scored = int(hasattr(refiner, "query_log_probs"))
        return Setting(shares.CLUSTER, int(refiner.scale), scored=scored)
    if type(refiner) is masked_soft_kmeans.Refiner:
        return Setting(shares.MASKED, power=int(refiner.mask_power))
    if type(refiner) is fitted_mask.Refiner:
        return Setting(shares.FITTED, power=int(refiner.mask_power))
    if type(refiner) is cosine_kmeans.Refiner:
        return Setting(shares.COSINE if refiner.cluster else shares.COSINE_ALONE)
    return None


def methods_of(refiner: nn.Module | None, runs: int, device: torch.device) -> Methods:
    """Of a fleet's refiner: None if it is supervised, or several side by side."""
    refiners: list[nn.Module | None] = [refiner]
    counts = [runs]
    if isinstance(refiner, SideBySide):
        refiners, counts = list(refiner.refiners), refiner.counts
    held: list[tuple[int, nn.Module]] = []
    own: list[tuple[int, int, oslo.Refiner]] = []
    places: dict[int, int] = {}
    rows: list[list[int]] = []
    walks: list[float] = []
    for each, count in zip(refiners, counts, strict=True):
        if (found := setting_of(each)) is None:
            return Methods(None)
        if type(each) is oslo.Refiner:
            own.append((len(rows), count, each))
        kind = shares.COSINE if found.kind == shares.COSINE_ALONE else found.kind
        first = places.get(kind, 0)
        if kind in PARAMETERS and each is not None:
            held.append((kind, each))
        rest = found.divisor, found.power, found.stopped, found.scored
        rows += [[found.kind, first + run, *rest] for run in range(count)]
        walks += [each.weight if type(each) is prwn.Refiner else 0.0] * count
        places[kind] = first + count
    return Methods(
        torch.tensor(rows, dtype=torch.int32, device=device),
        frozenset(places),
        held,
        any(row[5] for row in rows),
        own,
        torch.tensor(walks, device=device) if any(walks) else None,
    )
