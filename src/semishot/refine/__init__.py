"""Refinement methods, one file each: how much of each unlabeled example goes to each prototype.

A method is a module called as `refiner(unlabeled, prototypes) -> weights`, for U unlabeled examples
and N classes (..., U, D), (..., N, D) -> (..., U, N); the file name is its name. U may be 0. Built with
`runs=R` its parameters carry a leading axis R, and so do its inputs: one slice per run of a fleet.

A method whose class has `needs_support = True` is called as `refiner(unlabeled, prototypes, support,
labels)`, with the labeled examples (..., S, D) and their one-hot classes (..., S, N). One whose class has
`needs_step = True` gets `step=0, 1, ...` too, the refinement step. `weights_of` calls all kinds. One that
registers a buffer `share_done`, `torch.zeros(1)`, finds in it the share of the training's updates that are
done, from 0 to 1, and after the training 1.

A method outside this folder is known by MODULE:CLASS once `add` has imported it, and never before: a
configuration or a saved model that names a module does not import it.
"""

import difflib
import math
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from semishot.errors import InputError, reason_of
from semishot.prototypes import class_log_probs, class_prototypes

__all__ = [
    "SideBySide",
    "add",
    "added",
    "build",
    "extra_loss",
    "names",
    "query_log_probs",
    "refined_prototypes",
    "resolve",
    "weights_of",
]

ALIASES = {
    "basic": None,
    "kmeans-refine": "soft_kmeans",
    "kmeans-refine-radius": "distractor_cluster",
    "kmeans-refine-mask": "masked_soft_kmeans",
}
"""The authors' names; `basic` is the supervised model, which refines nothing."""
_ADDED: dict[str, type[nn.Module]] = {}
"""Methods outside this folder by their names MODULE:CLASS."""


def names() -> list[str]:
    """The names of all methods: those of the files in this folder."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def add(name: str) -> str:
    """Import a method outside this folder, so that its name can be used from now on in this process.

    Importing runs the code of its module. So this is called only for names that a person has given, in
    Python or on the command line, never for names that a file holds.

    Parameters
    ----------
    name
        MODULE:CLASS, such as `my_refiner:Refiner`. The module must be installed, or lie in the working
        folder; an installed one of the same name comes first. Any other name is left as it is.

    Returns
    -------
    str
        The same name.
    """
    if ":" in name and name not in _ADDED:
        _ADDED[name] = _import_class(name)
    return name


def _import_class(name: str) -> type[nn.Module]:
    """The class MODULE:CLASS."""
    if (parts := re.fullmatch(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)", name)) is None:
        raise InputError(f"{name!r} is not a name of the form MODULE:CLASS")
    folder = str(Path.cwd())
    sys.path.append(folder)  # only for this import, and last: nothing installed is hidden by it
    invalidate_caches()
    try:
        module = import_module(parts[1])
    except Exception as error:
        raise InputError(
            f"cannot import {parts[1]!r} for {name!r} ({type(error).__name__}: {reason_of(error)}); it must "
            "be installed, or in the working folder"
        ) from error
    finally:
        if sys.path[-1:] == [folder]:  # unless the module has changed it
            sys.path.pop()
    named = getattr(module, parts[2], None)
    if not (isinstance(named, type) and issubclass(named, nn.Module)):
        raise InputError(
            f"{name!r}: {parts[2]} is not a class of {parts[1]} derived from nn.Module"
        )
    return named


def added() -> list[str]:
    """The names that `add` has made known in this process."""
    return list(_ADDED)


def resolve(name: str) -> str:
    """The name of a method, given that name or the authors' name for it."""
    name = ALIASES.get(name) or name
    if name in names() or name in _ADDED:
        return name
    if ":" in name:
        class_of(name)
    choices = ["supervised", *names(), *ALIASES]
    near = difflib.get_close_matches(name, choices, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise InputError(f"unknown refiner {name!r}: choose from {', '.join(choices)}{hint}")


def class_of(name: str) -> type[nn.Module]:
    """The class MODULE:CLASS; InputError if `add` has not imported it."""
    if name not in _ADDED:
        raise InputError(
            f"{name!r} is not part of semishot, and a file that names it does not import it: allow it by "
            f"`--allow {name}` (evaluate, pick, show), or in Python by `semishot.refine.add({name!r})`"
        )
    return _ADDED[name]


def build(name: str, runs: int | None = None, **options: Any) -> nn.Module:
    """Build a method by name.

    Parameters
    ----------
    name
        One of `names()` or `added()`, or the authors' name of a method.
    runs
        R gives every parameter a leading axis R, for R runs trained side by side. None: a single run.
    **options
        Options of the method, such as `mask_power=2`.
    """
    known = resolve(name)
    refiner = _ADDED.get(known) or import_module(f"{__name__}.{known}").Refiner
    try:
        module: nn.Module = refiner(runs=runs, **options)
    except TypeError as error:
        raise InputError(f"refiner {name!r} does not take these options: {error}") from error
    return module


def weights_of(
    refiner: nn.Module,
    unlabeled: Tensor,
    prototypes: Tensor,
    support: Tensor,
    labels: Tensor,
    step: int = 0,
) -> Tensor:
    """(..., U, D) -> (..., U, N): what a method says, with the labeled examples if it needs them.

    The prototypes are (..., N, D), the labeled examples (..., S, D), their one-hot classes (..., S, N).
    Weights that do not fit the inputs or are not finite raise `InputError`; values are not looked at while
    gradients are recorded: training checks the loss instead.
    """
    more = (support, labels) if getattr(refiner, "needs_support", False) else ()
    which = {"step": step} if getattr(refiner, "needs_step", False) else {}
    weights: Tensor = refiner(unlabeled, prototypes, *more, **which)
    lead = torch.broadcast_shapes(unlabeled.shape[:-2], prototypes.shape[:-2])
    count, classes = unlabeled.shape[-2], prototypes.shape[-2]
    needed = (*lead, count, classes)
    returned = f"the refiner {type(refiner).__module__}:{type(refiner).__qualname__} returned"
    if not isinstance(weights, Tensor):
        raise InputError(f"{returned} {type(weights).__name__}, not weights {needed}")
    if weights.shape != needed:
        raise InputError(
            f"{returned} weights {tuple(weights.shape)}, not {needed}: one for each of {count} unlabeled "
            f"examples and {classes} classes"
        )
    if torch.promote_types(weights.dtype, prototypes.dtype) != prototypes.dtype:
        raise InputError(
            f"{returned} weights of {weights.dtype}; its inputs are {prototypes.dtype}"
        )
    looked_at = not (unlabeled.requires_grad or torch.compiler.is_compiling())
    if looked_at and (wrong := int((~weights.isfinite()).sum())):
        raise InputError(
            f"{returned} NaN or infinity: {wrong:,} of {weights.numel():,} weights {needed}"
        )
    return weights


def refined_prototypes(
    refiner: nn.Module | None,
    support: Tensor,
    labels: Tensor,
    unlabeled: Tensor,
    steps: int = 1,
    *,
    present: Tensor | None = None,
) -> Tensor:
    """Prototypes of the labeled examples, refined by the unlabeled ones (Eqs. 1, 4, 9).

    Parameters
    ----------
    refiner
        A method, called as `weights_of` does, or None for the mean of the labeled examples.
    support
        Labeled embeddings, (..., S, D).
    labels
        Their classes, one-hot, (..., S, N).
    unlabeled
        Unlabeled embeddings, (..., U, D). U may be 0.
    steps
        How many times to refine. A method that ignores the prototypes it is given, and has steps of its own
        as `oslo` does, gives the same each time.
    present
        1 for unlabeled examples that take part and 0 for others, whose weights become zero, (..., U). None:
        all take part.

    Returns
    -------
    Tensor
        Prototypes, (..., N, D).
    """
    prototypes = class_prototypes(support, labels)  # (..., N, D)           Eq. 1
    if refiner is None or unlabeled.shape[-2] == 0:
        return prototypes
    examples = torch.cat([support, unlabeled], -2)  # (..., S + U, D)
    for step in range(steps):
        weights = weights_of(refiner, unlabeled, prototypes, support, labels, step)  # (..., U, N)
        if present is not None:
            weights = weights * present.unsqueeze(-1)
        prototypes = class_prototypes(examples, torch.cat([labels, weights], -2))  # Eqs. 4, 9
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


def extra_loss(refiner: nn.Module | None, unlabeled: Tensor, prototypes: Tensor) -> Tensor | None:
    """(..., U, D), (..., N, D) -> (...): what a method with a function `extra_loss` adds to the loss of an
    episode in training, given the prototypes of Eq. 1. None without such a method or unlabeled examples."""
    own = getattr(refiner, "extra_loss", None)
    if own is None or not unlabeled.shape[-2]:
        return None
    loss: Tensor = own(unlabeled, prototypes)
    return loss


class SideBySide(nn.Module):
    """Several refiners in one fleet: the first takes the first `counts[0]` runs, and so on."""

    def __init__(self, refiners: Sequence[nn.Module], counts: Sequence[int]) -> None:
        super().__init__()
        self.refiners, self.counts = nn.ModuleList(refiners), list(counts)
        self.needs_support = self.needs_step = True  # for those that do
        if any(hasattr(refiner, "query_log_probs") for refiner in refiners):
            self.query_log_probs = self._query_log_probs
        if any(hasattr(refiner, "extra_loss") for refiner in refiners):
            self.extra_loss = self._extra_loss

    def forward(
        self, unlabeled: Tensor, prototypes: Tensor, support: Tensor, labels: Tensor, step: int = 0
    ) -> Tensor:
        parts = self._parts(unlabeled, prototypes, support, labels)
        return torch.cat([weights_of(r, u, p, s, y, step) for r, u, p, s, y in parts])

    def of_run(self, run: int) -> tuple[nn.Module, int]:
        """The refiner of one run of the fleet, and which of the refiner's own runs it is."""
        for refiner, count in zip(self.refiners, self.counts, strict=True):
            if run < count:
                return refiner, run
            run -= count
        raise IndexError(f"no run {run} beyond the last")

    def _parts(self, *tensors: Tensor) -> Iterator[Any]:
        return zip(self.refiners, *(torch.split(t, self.counts) for t in tensors), strict=True)

    def _extra_loss(self, unlabeled: Tensor, prototypes: Tensor) -> Tensor:
        losses = [extra_loss(*part) for part in self._parts(unlabeled, prototypes)]
        nothing = unlabeled.new_zeros(len(unlabeled)).split(self.counts)
        return torch.cat([n if x is None else x for x, n in zip(losses, nothing, strict=True)])

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
