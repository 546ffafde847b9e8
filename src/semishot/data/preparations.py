"""How data sets of the paper can be prepared, by the names that records have. Nothing here imports NumPy."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

from semishot.data.settings import REDUCTIONS, Reduction

Rotations = Literal["exact", "warped"]
Lists = Literal["usual", "swapped"]
Way = Reduction | Rotations | Lists

CHOICES: dict[str, dict[str, Sequence[Way]]] = {
    "omniglot": {"reduction": REDUCTIONS, "rotations": get_args(Rotations)},
    "mini-imagenet": {"lists": get_args(Lists)},
}
"""Flags of `semishot data prepare` that change images or classes of a data set; the first way is usual."""


@dataclass(frozen=True)
class Preparation:
    dataset: str
    ways: tuple[Way, ...]
    """One for each flag of `CHOICES`."""

    @property
    def name(self) -> str:
        """What is unusual about it, as in `cubic-warped`; empty for the usual one."""
        return "-".join(self.unusual.values())

    @property
    def flags(self) -> list[str]:
        """Of `semishot data prepare`; none for the usual one."""
        return [word for flag, way in self.unusual.items() for word in (f"--{flag}", way)]

    @property
    def unusual(self) -> dict[str, Way]:
        choices = CHOICES[self.dataset].items()
        chosen = zip(choices, self.ways, strict=True)
        return {flag: way for (flag, possible), way in chosen if way != possible[0]}


AUTHORS = {
    each.dataset: each
    for each in (
        Preparation("omniglot", ("cubic", "warped")),
        Preparation("mini-imagenet", ("swapped",)),
    )
}
"""That of the authors' code, which made the paper's numbers."""
PREPARATIONS = {
    (dataset, each.name): each
    for dataset, flags in CHOICES.items()
    for each in (Preparation(dataset, ways) for ways in product(*flags.values()))
}
