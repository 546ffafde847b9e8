"""What the kernels of `episode.py` compute, and in which sizes."""

from dataclasses import dataclass

import triton

from semishot.network.fused import points
from semishot.network.fused.methods import Methods

TILE: int = points.TILE.value
STAGES = 2
"""Tiles loaded ahead in the largest products: three would need more shared memory than many GPUs have."""
WARPS = 8
LEAST, ROWS_AT_ONCE = 16, 64
"""Rows of the smallest and of the largest product."""
MOST_POINTS = 1024
"""Of a run: a table of all pairs of them is 4 MB."""


@dataclass(frozen=True)
class Sizes:
    """Of an episode."""

    way: int
    shot: int
    unlabeled: int
    queries: int


@dataclass(frozen=True)
class Plan:
    """What is computed, beside the sizes of the episode."""

    sizes: Sizes
    steps: int
    """Refinement steps; 0 without a method."""
    initial_loss: float
    """As in `ProtoNet`."""
    members: int
    """Unlabeled images of the classes; those after them are distractors."""
    parts: int
    """`Methods.parts`."""
    by_rows: bool
    scored: bool
    walks: bool
    directions: bool
    """Whether any run has weights by `directions.py`, and refines."""
    others: bool
    """Whether any run has not."""

    @property
    def images(self) -> int:
        sizes = self.sizes
        return sizes.way * sizes.shot + sizes.unlabeled + sizes.queries

    @property
    def points(self) -> int:
        """M."""
        return int(triton.cdiv(self.images + 1, TILE)) * TILE

    @property
    def width(self) -> int:
        """U, rounded up to a multiple of TILE."""
        return int(triton.cdiv(self.sizes.unlabeled, TILE)) * TILE

    @property
    def classes(self) -> int:
        """N, with the other cluster if queries are scored over it, rounded up."""
        return max(LEAST, int(triton.next_power_of_2(self.sizes.way + self.scored)))

    @property
    def rows(self) -> int:
        """UT."""
        rounded = int(triton.next_power_of_2(max(LEAST, self.sizes.unlabeled)))
        return min(rounded, ROWS_AT_ONCE) if self.by_rows else rounded

    @property
    def warps(self) -> int:
        """Of a program that holds TILE points of a table, four numbers to a thread."""
        return min(16, max(4, self.classes * TILE // 128))

    @property
    def row_warps(self) -> int:
        """Of a program that holds UT rows of a table."""
        return min(16, max(4, self.classes * self.rows // 128))

    def fits(self, runs: int) -> bool:
        """Whether programs can hold the tables, and count their numbers in 32 bits."""
        whole = self.by_rows or self.rows <= 256
        numbers = runs * self.points * max(self.points, (self.steps + 1) * self.classes)
        return self.classes <= 64 and self.points <= MOST_POINTS and whole and numbers < 2**31


def plan_of(
    methods: Methods, sizes: Sizes, steps: int, initial_loss: float, members: int
) -> Plan | None:
    """None if the kernels do not know a method, or cannot hold the tables."""
    if methods.settings is None:
        return None
    directions = bool(methods.on_directions) and sizes.unlabeled > 0 and steps > 0
    walking = methods.walks is not None and sizes.unlabeled > 0
    if not sizes.unlabeled or (methods.kinds == {0} and not directions):
        steps = 0
    if (methods.scored and steps != 1) or (walking and sizes.unlabeled == 1):
        return None
    alone = sum(count for _, count, _ in methods.on_directions) == len(methods.settings)
    known = methods.parts, methods.by_rows, methods.scored
    plan = Plan(sizes, steps, initial_loss, members, *known, walking, directions, not alone)
    return plan if plan.fits(len(methods.settings)) else None
