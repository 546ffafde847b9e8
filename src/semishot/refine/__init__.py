"""Refinement methods, one file each: how much of each unlabeled example goes to each prototype.

A method is a module called as `refiner(unlabeled, prototypes) -> weights`, for U unlabeled examples
and N classes (..., U, D), (..., N, D) -> (..., U, N); the file name is its name. Built with `runs=R`
its parameters carry a leading axis R, and so do its inputs: one slice per run of a fleet.
"""

import difflib
import math
import pkgutil
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from semishot.errors import InputError
from semishot.prototypes import class_log_probs, class_prototypes

__all__ = ["SideBySide", "build", "names", "query_log_probs", "refined_prototypes", "resolve"]

ALIASES = {
    "basic": None,
    "kmeans-refine": "soft_kmeans",
    "kmeans-refine-radius": "distractor_cluster",
    "kmeans-refine-mask": "masked_soft_kmeans",
}
"""The authors' names; `basic` is the supervised model, which refines nothing."""


def names() -> list[str]:
    """The names of all methods: those of the files in this folder."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def resolve(name: str) -> str:
    """The name of a method, given that name or the authors' name for it."""
    name = ALIASES.get(name) or name
    if name in names():
        return name
    choices = ["supervised", *names(), *ALIASES]
    near = difflib.get_close_matches(name, choices, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise InputError(f"unknown refiner {name!r}: choose from {', '.join(choices)}{hint}")


def build(name: str, runs: int | None = None, **options: Any) -> nn.Module:
    """Build a method by name.

    Parameters
    ----------
    name
        One of `names()`, or the authors' name of a method.
    runs
        R gives every parameter a leading axis R, for R runs trained side by side. None: a single run.
    **options
        Options of the method, such as `mask_power=2`.
    """
    refiner = import_module(f"{__name__}.{resolve(name)}").Refiner
    try:
        module: nn.Module = refiner(runs=runs, **options)
    except TypeError as error:
        raise InputError(f"refiner {name!r} does not take these options: {error}") from error
    return module


def refined_prototypes(
    refiner: nn.Module | None, support: Tensor, labels: Tensor, unlabeled: Tensor, steps: int = 1
) -> Tensor:
    """Prototypes of the labeled examples, refined by the unlabeled ones (Eqs. 1, 4, 9).

    Parameters
    ----------
    refiner
        A method, called as `refiner(unlabeled, prototypes)`, or None for the mean of the labeled examples.
    support
        Labeled embeddings, (..., S, D).
    labels
        Their classes, one-hot, (..., S, N).
    unlabeled
        Unlabeled embeddings, (..., U, D). U may be 0.
    steps
        How many times to refine.

    Returns
    -------
    Tensor
        Prototypes, (..., N, D).
    """
    prototypes = class_prototypes(support, labels)  # (..., N, D)           Eq. 1
    if refiner is None or unlabeled.shape[-2] == 0:
        return prototypes
    examples = torch.cat([support, unlabeled], -2)  # (..., S + U, D)
    for _ in range(steps):
        weights = torch.cat([labels, refiner(unlabeled, prototypes)], -2)  # (..., S + U, N)
        prototypes = class_prototypes(examples, weights)  # (..., N, D)           Eqs. 4, 9
    return prototypes


def query_log_probs(
    refiner: nn.Module | None,
    queries: Tensor,
    prototypes: Tensor,
    unlabeled: Tensor,
    support: Tensor,
    labels: Tensor,
) -> Tensor:
    """(..., Q, D) -> (..., Q, N): log-probabilities of the queries by Eq. 2.

    A method with a function `query_log_probs` of its own scores them instead. It also gets the
    unlabeled embeddings and the prototypes before refinement.
    """
    own = getattr(refiner, "query_log_probs", None)
    if own is None:
        return class_log_probs(queries, prototypes)  # (..., Q, N)
    scored: Tensor = own(queries, prototypes, unlabeled, class_prototypes(support, labels))
    return scored


class SideBySide(nn.Module):
    """Several refiners in one fleet: the first takes the first `counts[0]` runs, and so on."""

    def __init__(self, refiners: Sequence[nn.Module], counts: Sequence[int]) -> None:
        super().__init__()
        self.refiners, self.counts = nn.ModuleList(refiners), list(counts)
        if any(hasattr(refiner, "query_log_probs") for refiner in refiners):
            self.query_log_probs = self._query_log_probs

    def forward(self, unlabeled: Tensor, prototypes: Tensor) -> Tensor:
        parts = self._parts(unlabeled, prototypes)
        return torch.cat([refiner(u, p) for refiner, u, p in parts])

    def of_run(self, run: int) -> tuple[nn.Module, int]:
        """The refiner of one run of the fleet, and which of the refiner's own runs it is."""
        for refiner, count in zip(self.refiners, self.counts, strict=True):
            if run < count:
                return refiner, run
            run -= count
        raise IndexError(f"no run {run} beyond the last")

    def _parts(self, *tensors: Tensor) -> Iterator[Any]:
        return zip(self.refiners, *(torch.split(t, self.counts) for t in tensors), strict=True)

    def _query_log_probs(
        self, queries: Tensor, prototypes: Tensor, unlabeled: Tensor, initial: Tensor
    ) -> Tensor:
        """Beside a method that scores N + 1 classes, one that scores N gets another of probability 0."""
        parts = self._parts(queries, prototypes, unlabeled, initial)
        scores = [
            refiner.query_log_probs(q, p, u, first)
            if hasattr(refiner, "query_log_probs")
            else class_log_probs(q, p)
            for refiner, q, p, u, first in parts
        ]
        width = max(s.shape[-1] for s in scores)
        return torch.cat([F.pad(s, (0, width - s.shape[-1]), value=-math.inf) for s in scores])
