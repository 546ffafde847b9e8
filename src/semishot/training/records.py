"""Records of what was measured on test episodes, and the files that hold them. Reading loads no torch."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast, get_args

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from semishot.data.episodes import EpisodeShape
from semishot.data.settings import Split
from semishot.errors import InputError
from semishot.system import provenance
from semishot.system.files import read_json, write_whole
from semishot.system.locks import Lock
from semishot.system.structs import from_json
from semishot.training.config import SUPERVISED, FleetConfig, Recipe
from semishot.training.run_folder import Training, code_state, now, versions

Share = Annotated[float, Meta(ge=0, le=1)]


class RecordFields(TypedDict):
    """The fields of all kinds of records. Accuracies are fractions."""

    dataset: str
    preset: str
    model: str
    options: dict[str, Any]
    trained_as: NotRequired[str]
    """The method of the training, if `model` names another one that refined at test."""
    way: int
    shot: int
    query: int
    unlabeled: int
    distractors: int
    within_group: NotRequired[bool]
    split: Split
    split_seed: int
    episodes: int
    at_test: NotRequired[dict[str, Any]]
    """Steps and options of the refinement at test, if not as in training."""
    accuracy: Share
    accuracy_ci95: Share
    """Half the width of the 95 % interval over episodes."""
    episode_accuracies: NotRequired[list[Share]]
    """Not in published files."""
    recipe: dict[str, Any]
    """The settings that differ from the defaults."""
    train: dict[str, Any]
    """The training episode."""
    updates: int
    seconds: float
    """Of the measurement; so is the device."""
    device: str
    versions: dict[str, str]
    date: str
    """With the time, in UTC."""
    code: str
    """A digest of the source that can change a number: `run_folder.code_state`."""
    commit: NotRequired[str]
    """What was checked out, if it was a checkout."""
    data: NotRequired[str]
    """The first digits of the pool's fingerprint."""
    preparation: NotRequired[str]
    """How the images of the pool were prepared, if not as usual, such as `cubic-warped`."""
    command: NotRequired[str]
    """What was typed, without the flags that name folders."""
    training: NotRequired[Training]


class AccuracyRecord(RecordFields):
    """A run of a fleet on the episodes of a table or a figure."""

    kind: Literal["accuracy"]


class BaselineRecord(RecordFields):
    """A classifier of Table 5; `model` is its name."""

    kind: Literal["baseline"]
    features: str


class Separation(TypedDict):
    """How well a score separates distractors from other unlabeled images."""

    auroc: float
    average_precision: float
    auroc_within_episode: float


class MaskHistogram(TypedDict):
    """Images by mask value, in bins of equal width from 0 to 1."""

    distractors: list[int]
    others: list[int]


class MaskRecord(RecordFields):
    """A run of a fleet behind Figure 7."""

    kind: Literal["masks"]
    source: NotRequired[str]
    """A model that comes with the package."""
    tells_distractors: dict[str, Separation]
    """Keys are the names of the scores."""
    mask_histogram: NotRequired[MaskHistogram]
    bimodality: NotRequired[float]


class AblationRecord(RecordFields):
    """A variant of a table's cell, or the cell that variants are compared with."""

    kind: Literal["ablation"]
    variant: str
    """Its name; empty for the cell itself."""
    only: str
    """The value of `--only`."""


Record = AccuracyRecord | BaselineRecord | MaskRecord | AblationRecord
KINDS = ("accuracy", "baseline", "masks", "ablation")
SETTINGS = (
    *("kind", "dataset", "preset", "model", "features", "options", "trained_as", "variant"),
    *("source", "preparation"),
    *("split", "split_seed", "episodes", "at_test"),
    *("way", "shot", "query", "unlabeled", "distractors", "within_group", "recipe", "train"),
)
"""The fields that identify a measurement: a second one with equal fields replaces the first."""


@dataclass(frozen=True)
class Measurement:
    """How runs were tested, and how long it took."""

    shape: EpisodeShape
    split: Split
    seconds: float
    device: str
    data: Mapping[str, str] = field(default_factory=dict)
    """`run_folder.data_state` of the pool."""
    training: Mapping[str, Training] = field(default_factory=dict)
    """`run_folder.training_of` the fleet."""
    at_test: Mapping[str, Any] = field(default_factory=dict)
    """Steps and options of the refinement, if not as in training."""

    def record(
        self,
        about: Mapping[str, Any],
        split_seed: int,
        accuracies: NDArray[np.float64],
        recipe: Recipe | None,
        train: Mapping[str, int],
    ) -> dict[str, Any]:
        """A record of accuracies (E,); `about` are its first fields, and `train` the training episode."""
        return {
            **about,
            **self.shape.as_dict(),
            "split": self.split,
            "split_seed": split_seed,
            "episodes": len(accuracies),
            **({"at_test": dict(self.at_test)} if self.at_test else {}),
            "accuracy": float(accuracies.mean()),
            "accuracy_ci95": half_width(accuracies),
            "episode_accuracies": [round(float(a), 5) for a in accuracies],
            "recipe": recipe.changes() if recipe else {},
            "train": dict(train),
            "updates": recipe.updates if recipe else 0,
            "seconds": round(self.seconds, 3),
            "device": self.device,
            "versions": versions(),
            "date": now(),
            **code_state(),
            **self.data,
            **({"command": command} if (command := provenance.command()) else {}),
            **self.training,
        }


def half_width(values: NDArray[np.float64]) -> float:
    """Of the 95 % interval of their mean."""
    return float(1.96 * values.std() / len(values) ** 0.5)


def accuracy_records(
    config: FleetConfig,
    model: str | None,
    measurement: Measurement,
    accuracies: NDArray[np.float64],
) -> list[AccuracyRecord]:
    """One record per run from accuracies (R, E); `model` names a method that the runs were not
    trained with."""
    records = []
    for member, per_episode in zip(config.members, accuracies, strict=True):
        about = {
            "kind": "accuracy",
            "dataset": config.dataset,
            "preset": config.preset,
            "model": model or member.model,
            "options": {} if model else dict(member.options),
            **({"trained_as": member.model} if model and member.model != SUPERVISED else {}),
        }
        train, seed = config.shape.as_dict(), member.split_seed
        records.append(measurement.record(about, seed, per_episode, config.recipe, train))
    return cast(list[AccuracyRecord], records)


def without_episodes(record: Record) -> Record:
    return cast(Record, {k: v for k, v in record.items() if k != "episode_accuracies"})


def read_records(path: Path) -> list[Record]:
    """The records of a result file."""
    return as_records(read_json(path), path)


def records_so_far(path: Path) -> list[Record]:
    """The records that a run has left in a result file; none if there is no such file."""
    try:
        return read_records(path) if path.exists() else []
    except InputError as error:
        raise InputError(f"{error}; delete it to measure again") from error


def as_records(content: Any, path: Path) -> list[Record]:
    """The content of a result file, checked; an error names the first wrong field."""
    where, records = f"{path} is not a result file", []
    if not isinstance(content, list):
        raise InputError(f"{where}: it does not hold a list of records")
    for index, record in enumerate(content):
        kind = record.get("kind") if isinstance(record, dict) else None
        if not isinstance(kind, str) or kind not in KINDS:
            kinds = ", ".join(KINDS)
            raise InputError(
                f"{where}: record {index}: kind must be one of {kinds}, not {kind!r:.40}"
            )
        of_kind = get_args(Record)[KINDS.index(kind)]
        records.append(from_json(of_kind, record, f"{where}: record {index}"))
    return records


def identity(record: Record) -> str:
    """Equal for two measurements of the same thing."""
    return json.dumps([record.get(name) for name in SETTINGS])


def publish(records: Sequence[Record], path: Path) -> None:
    """Add records to a result file, one per line, without the accuracies of single episodes."""
    with Lock(path.with_name(f".{path.name}.lock")):
        published = read_records(path) if path.exists() else []
        merged = {identity(record): record for record in published}
        merged |= {identity(record): without_episodes(record) for record in records}
        lines = [json.dumps(record, ensure_ascii=False) for record in merged.values()]
        write_whole(path, "[\n" + ",\n".join(lines) + "\n]\n")


class ChoiceVariant(TypedDict):
    """One recipe that was tried, with its accuracies in %."""

    round: int
    change: str
    accuracy_0: float
    half_range_0: float
    accuracy_5: float
    half_range_5: float


class Choice(TypedDict):
    """How a recipe was chosen on validation classes: `choice.json`."""

    title: str
    about: str
    variants: list[ChoiceVariant]
    device: str
    versions: str
    date: str
    again: str


def as_choice(content: Any, path: Path) -> Choice:
    """The content of `choice.json`, checked."""
    return from_json(Choice, content, f"{path} is not the record of a choice")
