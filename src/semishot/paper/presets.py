"""Presets: one documented training recipe per experiment, and the data sets that need another one."""

from dataclasses import dataclass, replace

from semishot.data.episodes import EpisodeShape
from semishot.errors import InputError
from semishot.training.config import Recipe

CODE_HALVINGS = (6_000, 8_000, 12_000, 14_000, 16_000, 18_000)
"""As in the authors' code for Omniglot: its first halving has no effect, and 10K is missing."""
TEXT_HALVINGS = tuple(range(2_000, 20_000, 2_000))
"""As in Appendix D: halved every 2K updates, starting at 2K."""
PHOTO_HALVINGS = tuple(range(50_000, 200_000, 25_000))
"""miniImageNet and tieredImageNet: the text is ambiguous, the code begins at 50K."""

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
        "the paper's experiment, with the schedule of its code", Recipe(halvings=CODE_HALVINGS)
    ),
    "ren2018-text": Preset(
        "the schedule as the paper's text has it", Recipe(halvings=TEXT_HALVINGS)
    ),
    "semishot": Preset(
        "beyond the paper: the same labels, encoder and test, another recipe",
        Recipe(updates=20_000, learning_rate=2e-3, cosine=True, augment=1.0),
        train=EpisodeShape(way=40, shot=1, query=1, unlabeled=5),
    ),
    "demo": Preset(
        "minutes on two CPU cores: a narrow encoder and few updates, on glyphs",
        Recipe(updates=800, filters=32, halvings=(400, 550, 700), init_std=0.1),
    ),
}
"""The presets for Omniglot, and for data sets that are not in the paper."""

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
"""Presets that differ for a data set of the paper."""


def preset(name: str, dataset: str = "omniglot") -> Preset:
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}: choose from {', '.join(PRESETS)}")
    return FOR_DATASET.get((name, dataset), PRESETS[name])


def recipe_of(name: str, dataset: str, updates: int | None = None) -> Recipe:
    """A preset's recipe, over another number of updates if one is given."""
    recipe = preset(name, dataset).recipe
    return recipe if updates is None else recipe.with_updates(updates)
