"""One run of a fleet: the one that is best on the validation classes, saved with its test record.

Letters: E episodes.
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot import refine
from semishot.errors import InputError
from semishot.network.protonet import take_run
from semishot.system.devices import device_name, pick_device
from semishot.training.config import Member
from semishot.training.evaluation import data_and_training, evaluate, open_fleet
from semishot.training.fleets import save_model
from semishot.training.records import (
    Measurement,
    Record,
    accuracy_records,
    half_width,
    without_episodes,
)
from semishot.training.requests import PickRequest, Where


@dataclass(frozen=True)
class Candidate:
    """A run of the fleet on the validation episodes."""

    model: str
    split_seed: int
    run: int
    """Its place in the fleet, from 0."""
    accuracy: float
    accuracy_ci95: float
    """Half the width of the 95 % interval over episodes."""


@dataclass(frozen=True)
class Lead:
    """How far the best is ahead of the next, on the validation episodes."""

    difference: float
    ci95: float
    """Half the width of its 95 % interval over episodes."""


@dataclass(frozen=True)
class Picked:
    candidates: Sequence[Candidate]
    """From the best to the worst."""
    lead: Lead | None
    """None if there is one candidate."""
    record: Record
    """Of the best, on the test classes."""

    def as_json(self) -> dict[str, Any]:
        """The record, with the accuracy on validation classes by which the run was chosen, and the others."""
        best = self.candidates[0]
        return {
            **self.record,
            "val_accuracy": best.accuracy,
            "val_accuracy_ci95": best.accuracy_ci95,
            "lead": None if self.lead is None else asdict(self.lead),
            "candidates": [asdict(each) for each in self.candidates],
        }


def pick_best(folder: Path, out: Path, request: PickRequest, where: Where) -> Picked:
    """Save the run that is best on the validation classes, of one method or of all."""
    shape, device = request.shape, pick_device(where.device)
    if out.suffix != ".safetensors":
        raise InputError(f"the file to write must end in .safetensors, not {out.name!r}")
    for method in (*request.allow, request.model or ""):
        refine.add(method)
    config, fleet, pool = open_fleet(folder, where.data_root, device)
    runs = chosen_runs(config.members, request.model, folder)
    seeds = [member.split_seed for member in config.members]
    (accuracies,) = evaluate([(fleet, shape)], pool, "val", seeds)
    runs.sort(key=lambda run: -accuracies[run].mean())
    best, *others = runs
    member = config.members[best]
    lead = None
    if others:
        same = member.split_seed == config.members[others[0]].split_seed
        lead = lead_of(accuracies[best], accuracies[others[0]], same)
    alone, single = replace(config, members=(member,)), take_run(fleet, best)
    begun = time.monotonic()
    (tested,) = evaluate([(single, shape)], pool, "test", [member.split_seed])
    measurement = Measurement(
        shape,
        "test",
        time.monotonic() - begun,
        device_name(device),
        *data_and_training(folder, pool),
    )
    (record,) = accuracy_records(alone, None, measurement, tested)
    candidates = [candidate(config.members[run], run, accuracies[run]) for run in runs]
    picked = Picked(candidates, lead, without_episodes(record))
    save_model(out, alone, single, {"result": json.dumps(picked.as_json())})
    return picked


def chosen_runs(members: Sequence[Member], model: str | None, folder: Path) -> list[int]:
    """The runs of one method, or all."""
    runs = [run for run, member in enumerate(members) if model in (None, member.model)]
    if not runs:
        held = ", ".join(dict.fromkeys(member.model for member in members))
        raise InputError(f"{folder} has no run of {model!r}: choose from {held}")
    return runs


def candidate(member: Member, run: int, accuracies: NDArray[np.float64]) -> Candidate:
    mean, error = float(accuracies.mean()), half_width(accuracies)
    return Candidate(member.model, member.split_seed, run, mean, error)


def lead_of(best: NDArray[np.float64], next_best: NDArray[np.float64], same_episodes: bool) -> Lead:
    """From accuracies (E,) each. Runs of one split seed see the same episodes: their difference is surer."""
    difference = float(best.mean() - next_best.mean())
    if same_episodes:
        return Lead(difference, half_width(best - next_best))
    return Lead(difference, math.hypot(half_width(best), half_width(next_best)))
