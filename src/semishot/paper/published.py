"""The paper as data: presets, the rows and columns of its tables, and the published numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from semishot.data.episodes import EpisodeShape
from semishot.errors import InputError
from semishot.training.config import SEMI_SUPERVISED_INFERENCE, SUPERVISED, Recipe

MODELS = {
    SUPERVISED: "Supervised",
    SEMI_SUPERVISED_INFERENCE: "Semi-Supervised Inference",
    "soft_kmeans": "Soft k-Means",
    "distractor_cluster": "Soft k-Means + Cluster",
    "masked_soft_kmeans": "Masked Soft k-Means",
}
"""The rows of Tables 1-3, in the paper's order and words."""

TRAINED = ("soft_kmeans", "distractor_cluster", "masked_soft_kmeans")
"""The models trained on unlabeled images; the first two rows share one supervised training."""

CODE_HALVINGS = (6_000, 8_000, 12_000, 14_000, 16_000, 18_000)
"""What the authors' code does on Omniglot: its first halving has no effect, and 10K is missing."""
TEXT_HALVINGS = tuple(range(2_000, 20_000, 2_000))
"""What Appendix D says: halved every 2K updates, starting at 2K."""
PHOTO_HALVINGS = tuple(range(50_000, 200_000, 25_000))
"""miniImageNet and tieredImageNet: the text can be read either way, the code begins at 50K."""

OMNIGLOT_TRAIN = EpisodeShape(way=5, shot=1, query=1, unlabeled=5)
PHOTO_TRAIN = EpisodeShape(way=5, shot=1, query=5, unlabeled=5)
MINI, TIERED = "mini-imagenet", "tiered-imagenet"


@dataclass(frozen=True)
class Preset:
    about: str
    recipe: Recipe
    train: EpisodeShape = OMNIGLOT_TRAIN
    """The training episode of 1-shot columns, without distractors."""
    distractors: int = 5
    """Distractor classes in the training episode of the column with distractors."""


PRESETS = {
    "ren2018": Preset(
        "reproduces the paper's numbers: the schedule of its code", Recipe(halvings=CODE_HALVINGS)
    ),
    "ren2018-text": Preset(
        "the schedule as the paper's text has it", Recipe(halvings=TEXT_HALVINGS)
    ),
    "semishot": Preset(
        "beyond the paper: the same labels, encoder and test, a better recipe",
        Recipe(updates=20_000, learning_rate=2e-3, cosine=True, augment=1.0),
        train=EpisodeShape(way=40, shot=1, query=1, unlabeled=5),
    ),
    "demo": Preset(
        "minutes on two CPU cores: a narrow encoder and few updates, on glyphs",
        Recipe(updates=800, filters=32, halvings=(400, 550, 700), init_std=0.1),
    ),
}
"""As they are for Omniglot, and for data sets that are not in the paper."""

_PHOTOS = Recipe(updates=200_000, halvings=PHOTO_HALVINGS)
_TEXT = replace(_PHOTOS, halvings=(25_000, *PHOTO_HALVINGS))
_BEYOND = Recipe(updates=30_000, cosine=True, mirror=True, weight_decay=5e-4)
FOR_DATASET = {
    ("ren2018", MINI): replace(
        PRESETS["ren2018"], recipe=replace(_PHOTOS, labeled_fraction=0.4), train=PHOTO_TRAIN
    ),
    ("ren2018", TIERED): replace(PRESETS["ren2018"], recipe=_PHOTOS, train=PHOTO_TRAIN),
    ("ren2018-text", MINI): replace(
        PRESETS["ren2018-text"], recipe=replace(_TEXT, labeled_fraction=0.4), train=PHOTO_TRAIN
    ),
    ("ren2018-text", TIERED): replace(PRESETS["ren2018-text"], recipe=_TEXT, train=PHOTO_TRAIN),
    ("semishot", MINI): replace(
        PRESETS["semishot"],
        recipe=replace(_BEYOND, labeled_fraction=0.4),
        train=replace(PHOTO_TRAIN, way=30, query=3),
    ),
    ("semishot", TIERED): replace(
        PRESETS["semishot"], recipe=_BEYOND, train=replace(PHOTO_TRAIN, way=30, query=3)
    ),
}
"""Presets that are others for a data set of the paper."""


def preset(name: str, dataset: str = "omniglot") -> Preset:
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}: choose from {', '.join(PRESETS)}")
    return FOR_DATASET.get((name, dataset), PRESETS[name])


@dataclass(frozen=True)
class Cell:
    """A published number: accuracy in percent, and the standard error over 10 splits."""

    mean: float
    error: float


DISTRACTORS = (0, 5)
"""The columns of every table, by distractor classes."""


@dataclass(frozen=True)
class Table:
    """A table of the paper, or the numbers behind a figure: what to measure, and what it says."""

    title: str
    dataset: str
    shots: tuple[int, ...]
    tests: Mapping[int, EpisodeShape]
    """The test episode by M, unlabeled images per class."""
    cells: Mapping[tuple[str, int, int], Cell]
    """By model, shot and number of distractor classes."""


def _published(columns: Sequence[tuple[int, int]], text: str) -> dict[tuple[str, int, int], Cell]:
    """Cells from rows of numbers in the paper's order, mean and error for each (shot, H)."""
    cells = {}
    for model, line in zip(MODELS, text.strip().splitlines(), strict=True):
        numbers = [float(number) for number in line.split()]
        for column, mean, error in zip(columns, numbers[::2], numbers[1::2], strict=True):
            cells[(model, *column)] = Cell(mean, error)
    return cells


_BOTH = [(1, 0), (5, 0), (1, 5), (5, 5)]
TABLES = {
    "table1": Table(
        "Table 1",
        "omniglot",
        (1,),
        # a class has 20 drawings, so M = 20 is impossible and both likely readings are kept
        {m: EpisodeShape(way=5, shot=1, query=19 - m, unlabeled=m) for m in (5, 10)},
        _published(
            [(1, 0), (1, 5)],
            """
            94.62 0.09  94.62 0.09
            97.45 0.05  95.08 0.09
            97.25 0.10  95.01 0.09
            97.68 0.07  97.17 0.04
            97.52 0.07  97.30 0.08
            """,
        ),
    ),
    "table2": Table(
        "Table 2",
        MINI,
        (1, 5),
        {20: EpisodeShape(way=5, shot=1, query=20, unlabeled=20)},
        _published(
            _BOTH,
            """
            43.61 0.27  59.08 0.22  43.61 0.27  59.08 0.22
            48.98 0.34  63.77 0.20  47.42 0.33  62.62 0.24
            50.09 0.45  64.59 0.28  48.70 0.32  63.55 0.28
            49.03 0.24  63.08 0.18  48.86 0.32  61.27 0.24
            50.41 0.31  64.39 0.24  49.04 0.31  62.96 0.14
            """,
        ),
    ),
    "table3": Table(
        "Table 3",
        TIERED,
        (1, 5),
        {20: EpisodeShape(way=5, shot=1, query=20, unlabeled=20)},
        _published(
            _BOTH,
            """
            46.52 0.52  66.15 0.22  46.52 0.52  66.15 0.22
            50.74 0.75  69.37 0.26  48.67 0.60  67.46 0.24
            51.52 0.36  70.25 0.31  49.88 0.52  68.32 0.22
            51.85 0.25  69.42 0.17  51.36 0.31  67.56 0.10
            52.39 0.44  69.88 0.20  51.38 0.38  69.08 0.25
            """,
        ),
    ),
}

FIGURE_UNLABELED = "figure-unlabeled"
PILES = (0, 1, 2, 5, 10, 15, 20, 25)
"""M at test along Figure 4."""


def table(name: str, dataset: str) -> Table:
    """A table, or the numbers of a figure, for a data set: its test episodes are the data set's own."""
    if name != FIGURE_UNLABELED:
        return TABLES[name]
    photos = dataset in (MINI, TIERED)
    query, most = (20, 25) if photos else (9, 10)  # as many queries at every M: 20 drawings a class
    tests = {m: EpisodeShape(way=5, shot=1, query=query, unlabeled=m) for m in PILES if m <= most}
    return Table("Accuracy over unlabeled images", dataset, (1, 5) if photos else (1,), tests, {})
