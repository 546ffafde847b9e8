"""Presets: one documented training recipe per experiment, and the data sets that need another one."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from semishot.data.episodes import EpisodeShape
from semishot.errors import InputError
from semishot.training.config import SEMI_SUPERVISED_INFERENCE, SUPERVISED, Classification, Recipe

CODE_HALVINGS = (6_000, 8_000, 12_000, 14_000, 16_000, 18_000)
"""As in the authors' code for Omniglot: its first halving has no effect, and 10K is missing."""
TEXT_HALVINGS = tuple(range(2_000, 20_000, 2_000))
"""As in Appendix D: halved every 2K updates, starting at 2K."""
PHOTO_HALVINGS = tuple(range(50_000, 200_000, 25_000))
"""miniImageNet and tieredImageNet: the text is ambiguous, the code begins at 50K."""

OMNIGLOT_TRAIN = EpisodeShape(way=5, shot=1, query=1, unlabeled=5)
PHOTO_TRAIN = EpisodeShape(way=5, shot=1, query=5, unlabeled=5)
MINI, TIERED = "mini-imagenet", "tiered-imagenet"
COSINE = "cosine_kmeans"


AtTest = Mapping[str, float | bool]
"""How a method refines at test, where that is not as in training: its steps and options."""


@dataclass(frozen=True)
class Preset:
    about: str
    recipe: Recipe
    train: EpisodeShape = OMNIGLOT_TRAIN
    """The training episode of 1-shot columns, without distractors."""
    one_training: bool = False
    """`train`, with the distractors it has, is the training episode of all columns."""
    models: tuple[str, ...] = ()
    """The rows of a table if none are asked for; none: the paper's."""
    at_test: Mapping[tuple[str, int], AtTest] = field(default_factory=dict)
    """By method and distractor classes at test; such a method has a fleet of its own."""

    def episode(self, shot: int, distractors: int, refines: bool = True) -> EpisodeShape:
        """The training episode of a table's column, or of the supervised model in it: it has the distractor
        classes that the column has at test."""
        shape = self.train
        if not self.one_training:
            shape = replace(shape, shot=shot, distractors=distractors)
        return shape if refines else replace(shape, unlabeled=0, distractors=0)


STAGES = (SUPERVISED, SEMI_SUPERVISED_INFERENCE, COSINE)
AT_TEST: dict[tuple[str, int], AtTest] = {
    (COSINE, 0): {"steps": 10, "scale": 8.0, "cluster": False},
    (COSINE, 5): {"steps": 3, "scale": 10.0, "threshold": 0.72},
}
PHOTOS_AT_TEST = {**AT_TEST, (COSINE, 5): {"steps": 2, "scale": 12.0, "threshold": 0.3}}
"""Chosen on the validation classes of Omniglot and of miniImageNet: `experiments/evidence/two_stage.json`."""

PRESETS = {
    "ren2018": Preset(
        "the paper's experiment, with the schedule of its code", Recipe(halvings=CODE_HALVINGS)
    ),
    "ren2018-text": Preset(
        "the schedule as the paper's text has it", Recipe(halvings=TEXT_HALVINGS)
    ),
    "semishot": Preset(
        "beyond the paper, for drawings: the same labels, encoder and test, another recipe",
        Recipe(updates=20_000, learning_rate=2e-3, cosine=True, augment=1.0),
        train=EpisodeShape(way=40, shot=1, query=1, unlabeled=5),
    ),
    "two-stage": Preset(
        "classification of the training classes first, then episodes with distractors; Cosine k-Means is "
        "told at test whether there are distractors",
        Recipe(
            updates=20_000,
            learning_rate=2e-3,
            cosine=True,
            augment=1.0,
            init_std=0.0,
            with_distractors=0.5,
            sphere=10.0,
            initial_loss=0.5,
            views=5,
            first=Classification(
                updates=4_000, batch=512, crop=1.0, turned_loss=0.0, rotation_loss=0.0
            ),
        ),
        train=EpisodeShape(way=40, shot=1, query=1, unlabeled=5, distractors=40),
        one_training=True,
        models=STAGES,
        at_test=AT_TEST,
    ),
    "demo": Preset(
        "minutes on two CPU cores: a narrow encoder and few updates, on glyphs",
        Recipe(updates=800, filters=32, halvings=(400, 550, 700), init_std=0.1),
    ),
}
"""The presets for Omniglot, and for data sets that are not in the paper."""

_PHOTOS = Recipe(updates=200_000, halvings=PHOTO_HALVINGS)
_TEXT = replace(_PHOTOS, halvings=(25_000, *PHOTO_HALVINGS))
_STAGES = Recipe(
    updates=14_000,
    cosine=True,
    mirror=True,
    weight_decay=0.0,
    init_std=0.0,
    turned=0.5,
    with_distractors=0.5,
    sphere=10.0,
    initial_loss=0.5,
    norm_momentum=0.02,
    both_sides=True,
    first=Classification(),
)
"""Chosen on the validation classes of miniImageNet: `experiments/evidence/two_stage.json`."""
_WIDE = EpisodeShape(way=16, shot=5, query=5, unlabeled=5, distractors=16)
_FOR_PHOTOS = {
    "ren2018": replace(PRESETS["ren2018"], recipe=_PHOTOS, train=PHOTO_TRAIN),
    "ren2018-text": replace(PRESETS["ren2018-text"], recipe=_TEXT, train=PHOTO_TRAIN),
    "two-stage": replace(PRESETS["two-stage"], recipe=_STAGES, train=_WIDE, at_test=PHOTOS_AT_TEST),
}
FOR_DATASET = {
    (name, dataset): replace(chosen, recipe=replace(chosen.recipe, labeled_fraction=fraction))
    for name, chosen in _FOR_PHOTOS.items()
    for dataset, fraction in ((MINI, 0.4), (TIERED, 0.1))
}
"""Presets that differ for a data set of the paper."""


def exists(name: str, dataset: str) -> bool:
    """`semishot` is for drawings: miniImageNet and tieredImageNet do not have it."""
    return name in PRESETS and not (name == "semishot" and dataset in (MINI, TIERED))


def preset(name: str, dataset: str = "omniglot") -> Preset:
    if not exists(name, dataset):
        what = "unknown preset" if name not in PRESETS else f"{dataset} has no preset"
        known = ", ".join(each for each in PRESETS if exists(each, dataset))
        raise InputError(f"{what} {name!r}: choose from {known}")
    return FOR_DATASET.get((name, dataset), PRESETS[name])
