"""What flags say of data: a split, a reduction, the shape of an episode. Nothing here imports NumPy."""

from dataclasses import asdict, dataclass
from typing import Literal, get_args

from semishot.errors import check_number

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
Reduction = Literal["antialiased", "cubic", "linear", "area", "nearest"]
REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)
MOST_OF_A_KIND = 10**6
"""Classes in an episode, and images of a class."""


@dataclass(frozen=True)
class EpisodeShape:
    way: int = 5
    """N, classes in an episode."""
    shot: int = 1
    """K, labeled support images per class."""
    query: int = 1
    """Query images per class."""
    unlabeled: int = 5
    """M, unlabeled images per class."""
    distractors: int = 0
    """H, further classes that give only unlabeled images."""
    within_group: bool = False
    """Draw all N + H classes of an episode from one group: an alphabet, a category."""

    def __post_init__(self) -> None:
        least = {"way": 2, "shot": 1, "query": 1, "unlabeled": 0, "distractors": 0}
        for name, low in least.items():
            check_number(f"an episode's {name}", getattr(self, name), low, MOST_OF_A_KIND)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many support, unlabeled and query images an episode has."""
        return (
            self.way * self.shot,
            (self.way + self.distractors) * self.unlabeled,
            self.way * self.query,
        )

    @property
    def images(self) -> int:
        return sum(self.sizes)

    def as_dict(self) -> dict[str, int]:
        """For JSON. `within_group` is written only if it is true: older files do not have it."""
        return {k: v for k, v in asdict(self).items() if k != "within_group" or v}
