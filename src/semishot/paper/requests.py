"""The settings of `reproduce ...` and `show ...`.

Each field is a flag of the command; the text below it is its help. Nothing here imports torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from semishot.data.settings import EpisodeShape
from semishot.errors import check_number
from semishot.training.requests import WITH_DISTRACTORS, Allow, Shape

Features = Literal["pixels", "random", "authors_random", "pretrained"]
EPISODE_PICTURE = EpisodeShape(query=3, unlabeled=3, distractors=5)
MOST_SPLITS = 1000
MOST_EPISODES = 10**9
TASK_PICTURE = EpisodeShape(way=2, shot=3, query=1, unlabeled=4, distractors=2)
REFINEMENT_PICTURE = EpisodeShape(way=3, query=5, unlabeled=5, distractors=3)


@dataclass(frozen=True)
class TableRequest:
    """Tables 1 to 3, and the accuracy over unlabeled images."""

    dataset: str | None = None
    """A prepared data set, instead of the table's; `semishot data list` shows them."""
    preset: str = "ren2018"
    """ren2018 is the paper's experiment, ren2018-text follows the schedule in its text, semishot (for
    drawings) goes beyond it, two-stage classifies the training classes first."""
    splits: int = 10
    """Labeled/unlabeled splits (seeds 0, 1, ...); the ± is their standard error."""
    shots: tuple[int, ...] = ()
    """Only these columns, as in `--shots 1`."""
    models: tuple[str, ...] = ()
    """Only these rows, as in `--models supervised oslo`: the paper's, any other method by name, or one of
    your own as MODULE:CLASS, imported from the working folder or where it is installed."""
    options: Mapping[str, str] | None = None
    """Options of the methods, as NAME VALUE pairs: `--models oslo --options steps 3`. They make rows of
    their own."""
    updates: int | None = None
    """Training updates instead of the preset's; the schedule is stretched accordingly."""
    finished: bool = False
    """Train nothing: show what earlier runs have finished."""
    partial: bool = False
    """Accept a data set that lacks classes. What is measured on it is not the paper's table, and says so."""
    fleet_size: int | None = None
    """Train at most this many runs as one fleet, instead of as many as can share one: more and smaller
    pieces of work, for many devices."""

    def __post_init__(self) -> None:
        check_number("--splits", self.splits, 1, MOST_SPLITS)
        if self.fleet_size is not None:
            check_number("--fleet-size", self.fleet_size, 1, 10**6)


@dataclass(frozen=True)
class AblationRequest:
    """What happens when one thing is changed at a time."""

    dataset: str = "omniglot"
    """A prepared data set; `semishot data list` shows them."""
    splits: int = 10
    """Labeled/unlabeled splits (seeds 0, 1, ...); the ± is their standard error."""
    only: str = ""
    """Only the ablations whose names contain this."""

    def __post_init__(self) -> None:
        check_number("--splits", self.splits, 1, MOST_SPLITS)


@dataclass(frozen=True)
class Table5Request:
    """1-NN and logistic regression on pixels and on Conv-4 features (Table 5)."""

    dataset: str = "omniglot"
    """A prepared data set; `semishot data list` shows them."""
    features: tuple[Features, ...] = ("pixels", "random", "pretrained")
    """What the classifiers see; pre-training is the only part that takes long. `authors_random`: the one
    random network of the authors' code instead of another one for each split."""
    with_scale_bug: bool = False
    """Also pre-train on pixels from 0 to 255, as the authors' code does."""
    splits: int = 10
    """Seeds 0, 1, ... of the labeled split, the weights and the test episodes."""
    updates: int | None = None
    """Of the pre-training, instead of 4,000; the schedule is stretched accordingly."""

    def __post_init__(self) -> None:
        check_number("--splits", self.splits, 1, MOST_SPLITS)


@dataclass(frozen=True)
class MasksRequest:
    """The mask values of distractors and others (Figure 7)."""

    model: tuple[str, ...] = ()
    """Trained run folders, or pretrained:omniglot; by default the fleets of Table 1's column with
    distractors, trained now if they are missing."""
    dataset: str = "omniglot"
    """The data set of those fleets."""
    preset: str = "ren2018"
    """Their preset."""
    splits: int = 10
    """Their labeled/unlabeled splits; the ± is their standard error."""
    updates: int | None = None
    """Their training updates instead of the preset's."""
    shape: Shape = WITH_DISTRACTORS
    """The test episode."""

    def __post_init__(self) -> None:
        check_number("--splits", self.splits, 1, MOST_SPLITS)


@dataclass(frozen=True)
class EpisodeRequest:
    """One test episode, seen through one run of a model."""

    model: str = "pretrained:omniglot"
    """A trained run folder, pretrained:omniglot, or `pixels` for no encoder at all."""
    dataset: str | None = None
    """With `pixels`, whose images to show."""
    shape: Shape = EPISODE_PICTURE
    """The episode."""
    seed: int = 0
    """Which stream of test episodes."""
    episode: int = 0
    """Which episode of it, from 0."""
    run: int = 0
    """Which run of the fleet, from 0."""
    allow: Allow = ()

    def __post_init__(self) -> None:
        check_number("--episode", self.episode, 0, MOST_EPISODES)
