"""Charts as data: lines, histograms, and the learning curves of a run; svg.py and plots.py draw them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from semishot.errors import InputError
from semishot.paper import published
from semishot.training.config import read_config
from semishot.training.log import read_log

LOOKS = 8
"""How many colors and marks there are: one for each of the paper's rows, and three for other methods."""
POINTS = 200
"""The most points of a learning curve."""


@dataclass(frozen=True)
class Line:
    label: str
    look: int
    """Which color and mark, as in the paper's rows; from 0 to LOOKS - 1."""
    points: Sequence[tuple[float, float]]
    errors: Sequence[float] = ()
    marked: bool = True


@dataclass(frozen=True)
class Steps:
    """A histogram over bins of equal width from 0 to 1."""

    label: str
    look: int
    heights: Sequence[float]
    errors: Sequence[float] = ()
    marked: bool = False

    @property
    def edges(self) -> list[float]:
        return [float(x) for x in np.linspace(0, 1, len(self.heights) + 1)]

    @property
    def points(self) -> list[tuple[float, float]]:
        return [(x, y) for i, y in enumerate(self.heights) for x in self.edges[i : i + 2]]


@dataclass(frozen=True)
class Chart:
    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line | Steps]
    x_values: Sequence[float] = ()
    """All values that could have been measured."""
    from_zero: bool = False
    filled: bool = False


def learning_curves(folder: Path) -> Chart | None:
    """The loss of each method of a fleet, the mean over its splits; None if nothing is logged."""
    try:
        config = read_config(folder / "config.json")
        log = read_log(folder)
        steps = np.array([line["step"] for line in log], float)
        losses = np.array([line["loss"] for line in log], float).reshape(-1, len(config.members))
    except (OSError, InputError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"cannot read the log of {folder}: {error}") from error
    if not len(losses) or not np.isfinite(losses).all():
        return None
    parts = np.array_split(np.arange(len(steps)), min(POINTS, len(steps)))
    lines = []
    models = list(dict.fromkeys(member.model for member in config.members))
    looks = {model: look % LOOKS for look, model in enumerate(published.rows(models))}
    for model in models:
        runs = [run for run, member in enumerate(config.members) if member.model == model]
        means = losses[:, runs].mean(1)
        points = [(float(steps[part].mean()), float(means[part].mean())) for part in parts]
        lines.append(Line(published.title(model), looks[model], points, marked=False))
    s = config.shape
    episode = f"{s.way}-way {s.shot}-shot, M = {s.unlabeled}, H = {s.distractors}"
    title = f"{config.dataset}, preset {config.preset}, {episode}"
    return Chart(title, "updates", "training loss", lines, from_zero=True)
