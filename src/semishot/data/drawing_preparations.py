"""How Omniglot's drawings can be prepared, by the names that records have. Nothing here imports NumPy."""

from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

from semishot.data.settings import REDUCTIONS, Reduction

Rotations = Literal["exact", "warped"]


@dataclass(frozen=True)
class DrawingPreparation:
    reduction: Reduction = "antialiased"
    rotations: Rotations = "exact"

    @property
    def name(self) -> str:
        """What is unusual about it, as in `cubic-warped`; empty for the usual one."""
        return "-".join(how for how in (self.reduction, self.rotations) if how not in _USUAL)

    @property
    def flags(self) -> list[str]:
        """Of `semishot data prepare omniglot`; none for the usual one."""
        both = (("--reduction", self.reduction), ("--rotations", self.rotations))
        return [word for flag, how in both if how not in _USUAL for word in (flag, how)]


_USUAL = ("antialiased", "exact")
AUTHORS = DrawingPreparation("cubic", "warped")
"""That of the authors' code, which made the paper's numbers."""
PREPARATIONS = {
    each.name: each
    for each in (DrawingPreparation(*how) for how in product(REDUCTIONS, get_args(Rotations)))
}
