"""Tables 1 to 3: records -> cells, grids beside the paper's numbers, commands, or cells as JSON."""

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semishot.errors import InputError
from semishot.paper import presets
from semishot.paper import published as paper
from semishot.report.image_preparations import data_root_flag
from semishot.report.provenance import split_seeds
from semishot.report.rendering import grid_as_text
from semishot.report.section import Cell, Grid, Number
from semishot.report.statistics import standard_error, unbiased, z_score
from semishot.training.config import Recipe
from semishot.training.origin import PARTIAL
from semishot.training.records import Record


@dataclass(frozen=True)
class Measured:
    """One cell: accuracy in percent over splits."""

    mean: float
    error: float
    """Standard error over splits, with ddof = 1."""
    interval: float
    """Mean half-width of the 95 % interval over episodes within a split."""
    splits: int

    def number(self, most_splits: int = 0) -> Number:
        """One split has no standard error; fewer splits than other cells have are noted."""
        note = str(self.splits) if self.splits < most_splits else ""
        return Number(self.mean, self.error if self.splits > 1 else None, note=note)

    def z(self, mean: float, error: float) -> float | None:
        """Of the difference to another mean with its standard error, as it is shown; one split has none."""
        return round(z_score(self.mean - mean, self.error, error), 1) if self.splits > 1 else None

    def as_json(self) -> dict[str, float | None]:
        """As fractions; one split has no standard error."""
        return {
            "accuracy": self.mean / 100,
            "standard_error_over_splits": self.error / 100 if self.splits > 1 else None,
            "mean_ci95_over_episodes": self.interval / 100,
            "splits": self.splits,
        }


def cell(records: Iterable[Record]) -> Measured | None:
    rows = list(records)
    if not rows:
        return None
    seeds = [row["split_seed"] for row in rows]
    if twice := {seed for seed in seeds if seeds.count(seed) > 1}:
        one = rows[0]
        raise InputError(
            f"{one['dataset']}, {one['model']}, {one['way']}-way {one['shot']}-shot, M = {one['unlabeled']}, "
            f"H = {one['distractors']}: two records of split seed {min(twice)}; remove one of them from the "
            "result files"
        )
    accuracies = 100 * np.array([row["accuracy"] for row in rows])
    interval = 100 * float(np.mean([row["accuracy_ci95"] for row in rows]))
    error = standard_error(accuracies.tolist())
    return Measured(float(accuracies.mean()), error, interval, len(rows))


Cells = dict[tuple[str, int], Measured | None]


def cells(records: Iterable[Record], shot: int, unlabeled: int) -> Cells:
    """What was measured at this shot and M, by model and number of distractor classes."""
    records = list(records)
    here = [r for r in records if (r["shot"], r["unlabeled"]) == (shot, unlabeled)]
    return {
        (model, h): cell(
            r
            for r in here
            # the supervised model ignores unlabeled images: both columns show one number
            if r["model"] == model and r["distractors"] == (0 if model == "supervised" else h)
        )
        for model in rows_of(records)
        for h in paper.DISTRACTORS
    }


def rows_of(records: Iterable[Record]) -> list[str]:
    """The models of the paper, then any others that were measured."""
    return paper.rows(record["model"] for record in records)


COLUMNS = {0: "no distractors", 5: "w/ distractors"}


def parts_of(table: paper.Table, records: Sequence[Record]) -> list[tuple[int, int]]:
    """The (shot, M) of a table at which something was measured."""
    held = {(r["shot"], r["unlabeled"]) for r in records}
    return [(shot, m) for shot in table.shots for m in table.tests if (shot, m) in held]


def is_beside_paper(table: paper.Table, records: Sequence[Record]) -> bool:
    """Whether the paper's numbers are of this data set, with all its classes."""
    first = records[0]
    return first["dataset"] == table.dataset and first.get("preparation") != PARTIAL


def table_grid(table: paper.Table, records: Sequence[Record], shot: int, unlabeled: int) -> Grid:
    """One shot and M; beside the paper's numbers where the data set is the paper's."""
    first, beside_paper = records[0], is_beside_paper(table, records)
    measured = cells(records, shot, unlabeled)
    splits = [ours.splits for ours in measured.values() if ours]
    header = ["model"]
    for h in paper.DISTRACTORS:
        header += [COLUMNS[h], *(["paper", "difference"] if beside_paper else [])]
    rows = []
    for model in rows_of(records):
        row: list[Cell] = [paper.title(model)]
        for h in paper.DISTRACTORS:
            ours = measured[model, h]
            row.append(ours.number(max(splits)) if ours else None)
            if beside_paper:
                theirs, later = table.cells.get((model, shot, h)), table.later.get((model, shot, h))
                if theirs is None and later is not None:
                    row += beside_later(ours, later)
                else:
                    row += beside(ours, theirs, unbiased(theirs.error) if theirs else 0.0)
        rows.append(row)
    filters = first["recipe"].get("filters", Recipe().filters)
    fewer = " (n): over n splits only." if min(splits) < max(splits) else ""
    return Grid(
        f"{shot}-shot, M = {unlabeled} unlabeled images per class at test, {max(splits)} splits",
        header,
        rows,
        heading=f"{first['dataset']}, 5-way {shot}-shot, M = {unlabeled} unlabeled per class at test. "
        f"Accuracy in %,\nmean ± standard error (ddof = 1) over {max(splits)} splits of {first['episodes']} "
        f"episodes; {first['updates']:,} updates, {filters} filters.{fewer}",
        captioned=True,
    )


def beside(ours: Measured | None, theirs: paper.Cell | None, error: float) -> list[Cell]:
    """The paper's number as printed, and how far the measured one is above it.

    `error` is the standard error of the paper's mean.
    """
    if theirs is None:
        return [None, None]
    gap = None
    if ours is not None:
        z = ours.z(theirs.mean, error)
        gap = Number(ours.mean - theirs.mean, form="difference", z=z)
    return [Number(theirs.mean, theirs.error), gap]


def beside_later(ours: Measured | None, theirs: paper.LaterCell) -> list[Cell]:
    """A later paper's number with its name, and how far the measured one is above it."""
    gap = Number(ours.mean - theirs.mean, form="difference") if ours else None
    return [Number(theirs.mean, note=theirs.source), gap]


def cell_commands(
    name: str, table: paper.Table, records: Sequence[Record]
) -> list[tuple[str, str]]:
    """The command for the whole table, then for each row at one shot, in both columns."""
    commands = [("all of it", table_command(name, table, records))]
    for shot in sorted({r["shot"] for r in records}):
        for model in rows_of(records):
            own = [r for r in records if (r["model"], r["shot"]) == (model, shot)]
            if own:
                row = f"{paper.title(model)}, {shot}-shot"
                commands.append((row, table_command(name, table, own)))
    return commands


def table_command(name: str, table: paper.Table, records: Sequence[Record]) -> str:
    """The command that measures these records of a table, which may be incomplete."""
    which = shlex.join(["--dataset", records[0]["dataset"], "--preset", records[0]["preset"]])
    command = f"semishot reproduce {name} {which} --splits {len(split_seeds(records))}"
    command += "".join(f" {word}" for word in updates_of(records[0]))
    shots, models = {r["shot"] for r in records}, {r["model"] for r in records}
    if shots < set(table.shots):
        command += " --shots " + " ".join(str(shot) for shot in table.shots if shot in shots)
    if models != set(paper.MODELS):
        command += " --models " + shlex.join(row for row in rows_of(records) if row in models)
    if records[0].get("preparation") == PARTIAL:
        command += " --partial"
    return command + data_root_flag(records)


def updates_of(record: Record) -> list[str]:
    """The flag for the number of updates, if it is not the preset's."""
    dataset, preset, updates = record["dataset"], record["preset"], record["updates"]
    if (
        presets.exists(preset, dataset)
        and updates == presets.preset(preset, dataset).recipe.updates
    ):
        return []
    return ["--updates", str(updates)]


def table_as_json(table: paper.Table, records: Sequence[Record]) -> str:
    """A table's cells as plain data, beside the published ones."""
    found, beside_paper = [], is_beside_paper(table, records)
    for shot, m in parts_of(table, records):
        for (model, h), ours in cells(records, shot, m).items():
            if ours is None:
                continue
            where = {"model": model, "shot": shot, "distractors": h, "unlabeled": m}
            cell: dict[str, Any] = {**where, **ours.as_json()}
            published = table.cells.get((model, shot, h))
            if published and beside_paper:
                cell["paper_accuracy"] = published.mean / 100
                cell["paper_standard_error"] = published.error / 100
                z = ours.z(published.mean, unbiased(published.error))
                cell |= {} if z is None else {"z": z}
            later = table.later.get((model, shot, h))
            if later and beside_paper:
                cell["published_accuracy"] = later.mean / 100
                cell["published_by"] = later.source
            found.append(cell)
    return json.dumps(found, indent=1)


def records_as_text(records: Sequence[Record]) -> str:
    """One line per run, then the mean of each method with its options; both kinds of ± are named."""
    header = ["model", "split seed", "accuracy %", "± 95 % over episodes"]
    methods = [
        ", ".join([r["model"], *(f"{k} {v}" for k, v in r["options"].items())]) for r in records
    ]
    rows: list[list[Cell]] = [
        [
            method,
            r["split_seed"],
            Number(100 * r["accuracy"]),
            Number(100 * r["accuracy_ci95"]) if r["episodes"] > 1 else None,
        ]
        for method, r in zip(methods, records, strict=True)
    ]
    lines = [grid_as_text(Grid("", header, rows))]
    for method in dict.fromkeys(methods):
        mean = cell(r for own, r in zip(methods, records, strict=True) if own == method)
        if mean and mean.splits > 1:
            error = f"{mean.error:.2f} (standard error over {mean.splits} splits)"
            lines.append(f"{method}: mean {mean.mean:.2f} ± {error}")
    return "\n".join(lines)
