"""What a fleet is: a recipe, an episode shape, and the runs that share them. All of it is JSON."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import cos, isfinite, pi
from pathlib import Path
from typing import Any, Literal

from semishot.data.episodes import EpisodeShape
from semishot.data.framing import Framing
from semishot.data.splits import check_seed
from semishot.errors import InputError, check_number
from semishot.system.files import MOST_JSON, read_regular
from semishot.system.structs import decode
from semishot.training.requests import Precision

SUPERVISED = "supervised"
SEMI_SUPERVISED_INFERENCE = "semi_supervised_inference"
NOT_REFINED = "not_refined"
"""In records: a method's runs, tested without it."""
MOST_UPDATES, MOST_FILTERS, MOST_BATCH = 10**9, 10**6, 10**6
"""Months, and more memory than there is."""
MOST_STEPS, MOST_VIEWS = 1000, 100
"""The most refinement steps, and views of an image: a model from an untrusted source must not run forever."""


@dataclass(frozen=True)
class Classification:
    """How an encoder is trained before the episodes: it classifies the labeled training images.

    By SGD with Nesterov's momentum and a cosine classifier. What is not said here (filters, mirroring, the
    labeled fraction, ...) is as in the recipe of the episodes.
    """

    updates: int = 10_000
    batch: int = 128
    """Labeled images of an update, before they are turned."""
    learning_rate: float = 0.1
    """It falls to zero along a cosine."""
    weight_decay: float = 1e-3
    """L2 on everything but the scales of the cosines."""
    crop: float = 0.8
    """The smallest part of the area that a random crop keeps; 1 crops nothing."""
    scale: float = 10.0
    """Where the learned scale of the cosines starts."""
    turned_loss: float = 0.5
    """Weight of the class loss of three copies, turned by a quarter, a half and three quarters."""
    rotation_loss: float = 1.0
    """Weight of the loss of a second classifier, which tells how far each copy is turned."""

    def __post_init__(self) -> None:
        for name, high in {"updates": MOST_UPDATES, "batch": MOST_BATCH}.items():
            check_number(name, getattr(self, name), 1, high)
        _check(self, "positive", lambda x: x > 0, "learning_rate", "scale")
        losses = "weight_decay", "turned_loss", "rotation_loss"
        _check(self, "at least 0", lambda x: x >= 0, *losses)
        _check(self, "above 0 and at most 1", lambda x: 0 < x <= 1, "crop")

    @property
    def copies(self) -> int:
        """How many times each image is seen in an update: upright alone, or in all four rotations."""
        return 4 if self.turned_loss or self.rotation_loss else 1


@dataclass(frozen=True)
class Recipe:
    """How a run is trained, apart from its method, its split and its episodes."""

    updates: int = 20_000
    learning_rate: float = 1e-3
    halvings: tuple[int, ...] = ()
    """Updates at which the learning rate is halved."""
    cosine: bool = False
    """Let the learning rate fall to zero along a cosine."""
    augment: float = 0.0
    """Strength of the random affine map of every training image; 0 is none."""
    mirror: bool = False
    """Mirror every second training image, left to right: for photographs, not for characters."""
    weight_decay: float = 5e-5
    """L2 on the convolution weights only."""
    filters: int = 64
    init_std: float = 0.01
    """Of the first convolution weights; 0: of each by itself, 1 / sqrt(3 x its inputs)."""
    labeled_fraction: float = 0.1
    precision: Precision = "bf16"
    """In training on CUDA: the encoder's activations in bf16, or in float32 with the convolutions'
    products in TF32, as PyTorch does by default and evaluation always does. CPUs use float32."""
    steps: int = 1
    """Refinement steps, in training and at test."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """SGD with Nesterov's momentum is for classification."""
    crop: float = 1.0
    """The smallest part of the area that a random crop of a training image keeps; 1 crops nothing."""
    turned: float = 0.0
    """The share of an episode's classes that are turned by 0 to 3 quarters, all images of a class alike."""
    with_distractors: float = 1.0
    """The share of training episodes whose distractors take part, if the episode has any. In the others their
    weights are zero; a method that looks at all unlabeled images at once, as `label_propagation` and the
    loss of `prwn`, still sees them."""
    sphere: float = 0.0
    """If positive, embeddings lie on a sphere around the mean of the training images, and Eq. 2 is a softmax
    of cosines times a learned scale, which starts here."""
    initial_loss: float = 0.0
    """Weight of the loss with the prototypes of Eq. 1, added to that with the refined ones."""
    norm_momentum: float = 0.1
    """How far the moving averages of batch norm go in an update."""
    both_sides: bool = False
    """At test, average the embeddings of an image and of its mirror image: for photographs."""
    views: int = 1
    """At test, average the embeddings of so many views of an image: itself, and others, moved by random maps
    as in training, the same for all images."""
    first: Classification | None = None
    """How the encoder is trained before the episodes, if it is."""
    encoder: str = ""
    """The user's own, as MODULE:CLASS, in place of the four convolution blocks."""

    def __post_init__(self) -> None:
        most = {"updates": MOST_UPDATES, "filters": MOST_FILTERS}
        most |= {"steps": MOST_STEPS, "views": MOST_VIEWS}
        for name, high in most.items():
            check_number(name, getattr(self, name), 1, high)
        _check(self, "positive", lambda x: x > 0, "learning_rate")
        _check(self, "at least 0", lambda x: x >= 0, "init_std", "sphere", "initial_loss")
        _check(self, "above 0 and at most 1", lambda x: 0 < x <= 1, "crop", "norm_momentum")
        _check(self, "from 0 to 1", lambda x: 0 <= x <= 1, "turned", "with_distractors")
        if self.encoder and (self.first or self.sphere):
            raise InputError(
                "a preset of two stages trains its own encoder; choose another --preset"
            )
        if self.views > 1 and not self.augment:
            raise InputError("views of an image are moved as in training, where augment is 0")

    def as_dict(self) -> dict[str, Any]:
        """For JSON. What the paper's recipes do not use is written only if it was changed."""
        changed = self.changes()
        return {k: v for k, v in asdict(self).items() if k not in BEYOND or k in changed}

    def changes(self) -> dict[str, Any]:
        """The fields that differ from the defaults: enough to rebuild it, short enough for a record."""
        defaults = asdict(Recipe())
        changed = {k: v for k, v in asdict(self).items() if v != defaults[k]}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in changed.items()}

    def with_updates(self, updates: int | None) -> "Recipe":
        """The same recipe over another number of updates: the schedule is stretched with it, and so is the
        classification before. None: the recipe itself."""
        if updates is None:
            return self
        check_number("updates", updates, 1, MOST_UPDATES)
        halvings = tuple(round(h * updates / self.updates) for h in self.halvings)
        first = self.first
        if first is not None:
            before = max(1, round(first.updates * updates / self.updates))
            first = replace(first, updates=before)
        return replace(self, updates=updates, halvings=halvings, first=first)

    def of_classification(self, first: Classification) -> "Recipe":
        """How the encoder is trained before the episodes of this recipe."""
        kept = "augment", "mirror", "filters", "init_std", "labeled_fraction", "precision"
        own = "updates", "learning_rate", "weight_decay", "crop"
        settings = {name: getattr(self, name) for name in kept}
        settings |= {name: getattr(first, name) for name in own}
        return Recipe(cosine=True, optimizer="sgd", **settings)


BEYOND = (
    *("mirror", "optimizer", "crop", "turned", "with_distractors", "sphere", "initial_loss"),
    *("norm_momentum", "both_sides", "views", "first", "encoder"),
)
"""Fields of `Recipe` that go beyond the paper."""


def _check(settings: object, rule: str, right: Callable[[float], bool], *names: str) -> None:
    for name in names:
        if not right(value := getattr(settings, name)):
            raise InputError(f"{name} must be {rule}, not {value}")


def learning_rate(recipe: Recipe, step: int) -> float:
    """The learning rate of update `step`, counted from 0."""
    rate = recipe.learning_rate * 0.5 ** sum(step >= h for h in recipe.halvings)
    return rate * (0.5 + 0.5 * cos(pi * step / recipe.updates)) if recipe.cosine else rate


@dataclass(frozen=True)
class Member:
    """One run of a fleet: a method and the seed of its labeled split, weights and episodes."""

    model: str
    split_seed: int
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the refiner, such as the authors' variants."""

    def __post_init__(self) -> None:
        check_seed(self.split_seed)
        if "runs" in self.options:
            raise InputError(f"{self.model}: `runs` is not an option, it follows from the fleet")
        for name, value in self.options.items():
            if not isinstance(value, int | float) or not isfinite(value):
                raise InputError(f"option {name} must be a finite number, not {value!r:.40}")


@dataclass(frozen=True)
class FleetConfig:
    dataset: str
    data_fingerprint: str
    preset: str
    recipe: Recipe
    shape: EpisodeShape
    members: tuple[Member, ...]
    framing: Framing | None = field(default=None, compare=False)
    """How images are prepared for the encoder. Saved with the model, not in the JSON, whose digest
    names the run folder. None: the pool's data set has no rule for images from elsewhere."""

    def __post_init__(self) -> None:
        if not self.members:
            raise InputError("a fleet needs at least one run")
        supervised = [m.model == SUPERVISED for m in self.members]
        if any(supervised) and (self.shape.unlabeled or not all(supervised)):
            raise InputError(
                "supervised runs train without unlabeled images (batch norm would see them): give "
                f"them a fleet of their own with unlabeled 0, not {self.shape.unlabeled}"
            )

    @property
    def run_names(self) -> list[str]:
        """What to call each member in a message."""
        return [f"{member.model} of split seed {member.split_seed}" for member in self.members]

    @property
    def name(self) -> str:
        """A folder name: the main settings, and a digest of all of them."""
        s, digest = self.shape, hashlib.sha256(self.to_json().encode()).hexdigest()[:8]
        way = f"{s.way}way-{s.shot}shot-M{s.unlabeled}-H{s.distractors}"
        way += "-within-group" if s.within_group else ""
        return f"{way}-{self.recipe.updates}updates-{len(self.members)}runs-{digest}"

    def to_json(self) -> str:
        parts = {"recipe": self.recipe.as_dict(), "shape": self.shape.as_dict()}
        written = {**asdict(self), **parts}
        del written["framing"]
        return json.dumps(written, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes, name: object = "it") -> "FleetConfig":
        """`name` is used in messages."""
        return decode(cls, text, f"{name} is not a configuration of this version")


def read_config(path: Path) -> FleetConfig:
    """The configuration in a `config.json`."""
    return FleetConfig.from_json(read_regular(path, MOST_JSON), path)
