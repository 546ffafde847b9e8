"""The paper as data: presets, the rows and columns of its tables, and the published numbers."""

from dataclasses import dataclass

from semishot.config import SEMI_SUPERVISED_INFERENCE, SUPERVISED, Recipe
from semishot.episodes import EpisodeShape
from semishot.errors import InputError

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

TABLE1_TRAIN = EpisodeShape(way=5, shot=1, query=1, unlabeled=5)


@dataclass(frozen=True)
class Preset:
    about: str
    recipe: Recipe
    train: EpisodeShape = TABLE1_TRAIN
    """The training episode of 5-way 1-shot tables, without distractors."""
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


def preset(name: str) -> Preset:
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}: choose from {', '.join(PRESETS)}")
    return PRESETS[name]


@dataclass(frozen=True)
class Cell:
    """A published number: accuracy in percent, and the standard error over 10 splits."""

    mean: float
    error: float


TABLE1_DISTRACTORS = (0, 5)
TABLE1_TEST = {
    5: EpisodeShape(way=5, shot=1, query=14, unlabeled=5),
    10: EpisodeShape(way=5, shot=1, query=9, unlabeled=10),
}
"""By M at test: a class has 20 drawings, so M = 20 is impossible and both likely readings are kept."""

TABLE1: dict[tuple[str, int], Cell] = {
    (SUPERVISED, 0): Cell(94.62, 0.09),
    (SUPERVISED, 5): Cell(94.62, 0.09),
    (SEMI_SUPERVISED_INFERENCE, 0): Cell(97.45, 0.05),
    (SEMI_SUPERVISED_INFERENCE, 5): Cell(95.08, 0.09),
    ("soft_kmeans", 0): Cell(97.25, 0.10),
    ("soft_kmeans", 5): Cell(95.01, 0.09),
    ("distractor_cluster", 0): Cell(97.68, 0.07),
    ("distractor_cluster", 5): Cell(97.17, 0.04),
    ("masked_soft_kmeans", 0): Cell(97.52, 0.07),
    ("masked_soft_kmeans", 5): Cell(97.30, 0.08),
}
"""Omniglot, 5-way 1-shot, by model and number of distractor classes."""
