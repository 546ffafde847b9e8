"""What a fleet is: a recipe, an episode shape, and the runs that share them. All of it is JSON."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import cos, pi
from pathlib import Path
from typing import Any, Literal

from semishot.data.episodes import EpisodeShape
from semishot.data.framing import Framing
from semishot.data.splits import check_seed
from semishot.errors import InputError, check_number
from semishot.system.json_fields import fits, from_json
from semishot.system.open_files import MOST_JSON, read_regular, reading

SUPERVISED = "supervised"
SEMI_SUPERVISED_INFERENCE = "semi_supervised_inference"
NOT_REFINED = "not_refined"
"""In records: a method's runs, tested without it."""
MOST_UPDATES, MOST_FILTERS = 10**9, 10**6
"""Months, and more memory than there is."""
MOST_STEPS = 1000
"""The most refinement steps: a model from an untrusted source must not run forever."""


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
    labeled_fraction: float = 0.1
    precision: Literal["bf16", "tf32"] = "bf16"
    """In training on CUDA: the encoder's activations in bf16, or in float32 with the convolutions'
    products in TF32, as PyTorch does by default and evaluation always does. CPUs use float32."""
    steps: int = 1
    """Refinement steps, in training and at test."""

    def __post_init__(self) -> None:
        most = {"updates": MOST_UPDATES, "filters": MOST_FILTERS, "steps": MOST_STEPS}
        for name, high in most.items():
            check_number(name, getattr(self, name), 1, high)
        if not self.learning_rate > 0:
            raise InputError(f"the learning rate must be positive, not {self.learning_rate}")

    def as_dict(self) -> dict[str, Any]:
        """For JSON. `mirror` is written only if it is true: older files do not have it."""
        return {k: v for k, v in asdict(self).items() if k != "mirror" or v}

    def changes(self) -> dict[str, Any]:
        """The fields that differ from the defaults: enough to rebuild it, short enough for a record."""
        defaults = asdict(Recipe())
        changed = {k: v for k, v in asdict(self).items() if v != defaults[k]}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in changed.items()}

    def with_updates(self, updates: int) -> "Recipe":
        """The same recipe over another number of updates: the schedule is stretched with it."""
        check_number("updates", updates, 1, MOST_UPDATES)
        halvings = tuple(round(h * updates / self.updates) for h in self.halvings)
        return replace(self, updates=updates, halvings=halvings)


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
            if not fits(value, float | bool):
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
    names the run folder. None: a model of version 0.1, or of a pool without a data set."""

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
    def from_json(cls, text: str, name: object = "it") -> "FleetConfig":
        """`name` is used in messages."""
        where = f"{name} is not a configuration of this version"
        try:
            written = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: {error}") from error
        return from_json(cls, written, where)


def read_config(path: Path) -> FleetConfig:
    """The configuration in a `config.json`."""
    with reading(path):
        return FleetConfig.from_json(read_regular(path, MOST_JSON).decode(), path)
