"""What flags say of data: a split, an episode's shape, how a data set is prepared. No NumPy here."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Literal, get_args

from semishot.errors import check_number

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
Reduction = Literal["antialiased", "cubic"]
Rotations = Literal["exact", "warped"]
Lists = Literal["usual", "swapped"]
Setting = Reduction | Rotations | Lists
CHOICES: dict[str, dict[str, Sequence[Setting]]] = {
    "omniglot": {"reduction": get_args(Reduction), "rotations": get_args(Rotations)},
    "mini-imagenet": {"lists": get_args(Lists)},
}
"""Flags of `semishot data prepare` that change images or classes of a data set; the first is usual."""
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


@dataclass(frozen=True)
class DatasetVariant:
    """How a data set of the paper is prepared, by the name that records have."""

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


VARIANTS = {
    (dataset, variant.name): variant
    for dataset, flags in CHOICES.items()
    for variant in (DatasetVariant(dataset, chosen) for chosen in product(*flags.values()))
}
AUTHORS = {
    "omniglot": VARIANTS["omniglot", "cubic-warped"],
    "mini-imagenet": VARIANTS["mini-imagenet", "swapped"],
}
"""Those of the authors' code, which made the paper's numbers."""
