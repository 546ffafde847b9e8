"""What flags say of data: a split, an episode's shape, how a data set is prepared. No NumPy here."""

from dataclasses import asdict, dataclass
from typing import Literal, get_args

from semishot.errors import check_number

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
Reduction = Literal["antialiased", "cubic"]
Rotations = Literal["exact", "warped"]
Lists = Literal["usual", "swapped"]
UNUSUAL = {
    "omniglot": {"reduction": "cubic", "rotations": "warped"},
    "mini-imagenet": {"lists": "swapped"},
}
"""Flags of `semishot data prepare` that change images or classes of a data set, and their unusual value."""
AUTHORS = {"omniglot": "cubic-warped", "mini-imagenet": "swapped"}
"""The preparations of the authors' code, which made the paper's numbers."""
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
        """For JSON. `within_group` is written only if it is true."""
        return {k: v for k, v in asdict(self).items() if k != "within_group" or v}


def preparation(dataset: str, **settings: str) -> str:
    """What records call the images of these settings, as in `cubic-warped`; empty for the usual ones."""
    unusual = UNUSUAL[dataset]
    return "-".join(settings[flag] for flag in unusual if settings[flag] == unusual[flag])


def preparation_flags(dataset: str, name: str) -> list[str]:
    """The flags of `semishot data prepare` for images that records call so."""
    chosen = {flag: value for flag, value in UNUSUAL[dataset].items() if value in name.split("-")}
    return [word for flag, value in chosen.items() for word in (f"--{flag}", value)]
