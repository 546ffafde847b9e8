"""The settings of `train`, `evaluate` and `pick`.

Each field is a flag of the command; the text below it is its help. Nothing here imports torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from semishot.data.settings import EpisodeShape, Split
from semishot.errors import InputError
from semishot.system.devices import DataRoot, Device

EPISODES = 600
"""Test episodes of a record, as in the paper."""
Shape = Annotated[EpisodeShape, tyro.conf.arg(name="")]
"""Its fields are flags of their own: --way, not --shape.way."""
TABLE1_TEST = EpisodeShape(query=14)
Allow = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        help="Methods outside the package that the model may import, as MODULE:CLASS: its file names them, "
        "but only you can let their code run."
    ),
]
WITH_DISTRACTORS = EpisodeShape(query=14, distractors=5)
Precision = Literal["bf16", "tf32"]


@dataclass(frozen=True)
class Where:
    """Folders and the device of a command."""

    runs: Path = Path("runs")
    """Where runs are kept, resumed and found again."""
    data_root: DataRoot = None
    device: Device = "auto"


@dataclass(frozen=True)
class FleetRequest:
    """A fleet of one method, one run per split seed; None means the preset's value."""

    dataset: str = "glyphs"
    """A prepared data set; `semishot data list` shows them."""
    model: str = "masked_soft_kmeans"
    """supervised, soft_kmeans, distractor_cluster, masked_soft_kmeans, cosine_kmeans, fast_weights, oslo,
    prwn, label_propagation, or a method of your own as MODULE:CLASS."""
    preset: str = "ren2018"
    """Where updates, schedule and encoder come from."""
    split_seeds: tuple[int, ...] = (0,)
    """One run per seed: it sets the labeled split, the weights and the episodes."""
    way: int | None = None
    """Classes in a training episode, instead of the preset's."""
    shot: int | None = None
    """Labeled support images per class, likewise."""
    query: int | None = None
    """Query images per class, likewise."""
    unlabeled: int | None = None
    """Unlabeled images per class, likewise."""
    distractors: int | None = None
    """Further classes that give only unlabeled images, likewise."""
    within_group: bool = False
    """Draw all classes of an episode from one group: an alphabet, a category."""
    updates: int | None = None
    """Training updates instead of the preset's; the schedule is stretched accordingly."""
    filters: int | None = None
    """Encoder width instead of the preset's."""
    encoder: str | None = None
    """A network of your own as MODULE:CLASS instead of the preset's, imported from the working folder or
    where it is installed."""
    labeled_fraction: float | None = None
    """Share of each class's images that is labeled, instead of the preset's."""
    precision: Precision | None = None
    """Precision of the encoder in training on a GPU: tf32 keeps activations in float32,
    and is slower."""
    options: Mapping[str, str] | None = None
    """Options of the method, as NAME VALUE pairs: `--options mask_power 2`."""

    def __post_init__(self) -> None:
        twice = [seed for seed in self.split_seeds if self.split_seeds.count(seed) > 1]
        if twice:
            raise InputError(
                f"--split-seeds has {twice[0]} twice: runs of one seed are the same; give each once"
            )
        if self.options and self.model in ("supervised", "basic"):
            raise InputError(
                f"--options {' '.join(self.options)}: {self.model} refines nothing and has no options; "
                "drop --options, or choose another --model"
            )


@dataclass(frozen=True)
class EvaluationRequest:
    """Test a trained model on episodes of any shape."""

    model: str
    """A folder written by `semishot train` or `reproduce`, or pretrained:omniglot."""
    refiner: str | None = None
    """Refine with this method at test instead of the trained one, or with `none`."""
    split: Split = "test"
    """Classes to test on."""
    shape: Shape = TABLE1_TEST
    """The test episode."""
    episodes: int = EPISODES
    """Number of test episodes."""
    transductive: bool = False
    """Refine with an episode's queries among its unlabeled images, so that a query also helps the others."""
    allow: Allow = ()


@dataclass(frozen=True)
class PickRequest:
    """Choose the run of a fleet that is best on the validation classes."""

    model: str | None = None
    """Only runs of this one of the fleet's methods, instead of all."""
    shape: Shape = WITH_DISTRACTORS
    """The episode to judge by."""
    allow: Allow = ()
