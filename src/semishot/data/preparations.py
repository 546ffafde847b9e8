"""How data sets of the paper can be prepared, by the names that records have. Nothing here imports NumPy."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

from semishot.data.settings import REDUCTIONS, Reduction

Rotations = Literal["exact", "warped"]
Lists = Literal["usual", "swapped"]
Setting = Reduction | Rotations | Lists

CHOICES: dict[str, dict[str, Sequence[Setting]]] = {
    "omniglot": {"reduction": REDUCTIONS, "rotations": get_args(Rotations)},
    "mini-imagenet": {"lists": get_args(Lists)},
}
"""Flags of `semishot data prepare` that change images or classes of a data set; the first is usual."""


@dataclass(frozen=True)
class Preparation:
    dataset: str
    settings: tuple[Setting, ...]
    """One for each flag of `CHOICES`."""

    @property
    def name(self) -> str:
        """What is unusual about it, as in `cubic-warped`; empty for the usual one."""
        return "-".join(self.unusual.values())

    @property
    def flags(self) -> list[str]:
        """Of `semishot data prepare`; none for the usual one."""
        return [word for flag, chosen in self.unusual.items() for word in (f"--{flag}", chosen)]

    @property
    def unusual(self) -> dict[str, Setting]:
        choices = CHOICES[self.dataset].items()
        pairs = zip(choices, self.settings, strict=True)
        return {flag: chosen for (flag, possible), chosen in pairs if chosen != possible[0]}


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
    for each in (Preparation(dataset, chosen) for chosen in product(*flags.values()))
}
