"""Tables 1 to 3: records -> a section beside the paper's numbers, or its cells as JSON."""

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semishot.errors import InputError
from semishot.paper import presets
from semishot.paper import published as paper
from semishot.report.provenance import provenance, split_seeds
from semishot.report.rendering import grid_as_text
from semishot.report.section import Cell, Grid, Number, Section
from semishot.training.config import Recipe
from semishot.training.records import Record


@dataclass(frozen=True)
class Measured:
    """One cell: accuracy in percent over splits."""

    mean: float
    error: float
    """Standard error over splits: std(ddof=0) / sqrt(splits), as in the paper."""
    interval: float
    """Mean half-width of the 95 % interval over episodes within a split."""
    splits: int

    def number(self, most_splits: int = 0) -> Number:
        """One split has no standard error; fewer splits than other cells have are noted."""
        note = str(self.splits) if self.splits < most_splits else ""
        return Number(self.mean, self.error if self.splits > 1 else None, note=note)

    def as_json(self) -> dict[str, float]:
        return {
            "accuracy": self.mean / 100,
            "standard_error_over_splits": self.error / 100,
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
    error = float(accuracies.std() / len(rows) ** 0.5)
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


def table_section(name: str, table: paper.Table, records: Sequence[Record]) -> Section:
    """A table, a grid for each shot and M at test."""
    dataset, preset, updates = records[0]["dataset"], records[0]["preset"], records[0]["updates"]
    beside_paper = dataset == table.dataset
    others = set(rows_of(records)) - set(paper.MODELS)
    title = table.title if beside_paper else "The five models" + (" and others" if others else "")
    aim = presets.preset(preset, dataset).about
    parts = parts_of(table, records)
    best = best_differences(table, records)
    summary: list[Cell] = [
        f"{title}, {dataset}",
        preset,
        Number(updates, decimals=0),
        Number(len(best), decimals=0, note=f"of {len(table.cells)}"),
        sum(gap >= 0 for gap in best.values()),
        Number(min(best.values()), form="difference") if best else None,
    ]
    return Section(
        f"{title} ({dataset}, 5-way), preset `{preset}`, {updates:,} updates",
        [table_grid(table, records, *part) for part in parts],
        provenance(records),
        cell_commands(name, table, records),
        aim=f"{aim[0].upper()}{aim[1:]}.",
        comparison=comparison(table, best) if beside_paper and best else "",
        findings=findings(records, *parts[0]),
        is_complete=len(best) == len(table.cells),
        summary=summary if beside_paper else [],
    )


def table_grid(table: paper.Table, records: Sequence[Record], shot: int, unlabeled: int) -> Grid:
    """One shot and M; beside the paper's numbers where the data set is the paper's."""
    first, beside_paper = records[0], records[0]["dataset"] == table.dataset
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
                key = model, shot, h
                row += beside(ours, table.cells.get(key) or table.later.get(key))
        rows.append(row)
    filters = first["recipe"].get("filters", Recipe().filters)
    fewer = " (n): over n splits only." if min(splits) < max(splits) else ""
    return Grid(
        f"{shot}-shot, M = {unlabeled} unlabeled images per class at test, {max(splits)} splits",
        header,
        rows,
        heading=f"{first['dataset']}, 5-way {shot}-shot, M = {unlabeled} unlabeled per class at test. "
        f"Accuracy in %,\nmean ± standard error over {max(splits)} splits of {first['episodes']} "
        f"episodes; {first['updates']:,} updates, {filters} filters.{fewer}",
        captioned=True,
    )


def beside(ours: Measured | None, theirs: paper.Cell | paper.LaterCell | None) -> list[Cell]:
    """The paper's number, or a later paper's with its name, and how far the measured one is above it."""
    if theirs is None:
        return [None, None]
    gap = Number(ours.mean - theirs.mean, form="difference") if ours else None
    if isinstance(theirs, paper.LaterCell):
        return [Number(theirs.mean, note=theirs.source), gap]
    return [Number(theirs.mean, theirs.error), gap]


def best_differences(
    table: paper.Table, records: Sequence[Record]
) -> dict[tuple[str, int, int], float]:
    """How far each cell is above the paper's, in points, at the M where it is highest."""
    best: dict[tuple[str, int, int], float] = {}
    for shot, m in parts_of(table, records):
        for (model, h), ours in cells(records, shot, m).items():
            key = model, shot, h
            if ours and key in table.cells:
                best[key] = max(best.get(key, -np.inf), ours.mean - table.cells[key].mean)
    return best


def comparison(table: paper.Table, best: dict[tuple[str, int, int], float]) -> str:
    above, better = sum(gap >= 0 for gap in best.values()), "At the better M, "
    return (
        f"{better if len(table.tests) > 1 else ''}{above} of the {len(best)} cells measured are "
        f"at or above the paper's; the lowest difference is {min(best.values()):+.2f}."
    )


def findings(records: Sequence[Record], shot: int, unlabeled: int) -> list[str]:
    """What unlabeled images gain and distractors cost, as far as it was measured."""
    means = {k: ours.mean for k, ours in cells(records, shot, unlabeled).items() if ours}
    methods = [model for model in rows_of(records) if model != "supervised"]
    bought = {model: means[model, 0] for model in methods if (model, 0) in means}
    kept = {model: means[model, 5] for model in methods if (model, 5) in means}
    said = []
    if bought and unlabeled and ("supervised", 0) in means:
        base, best = means["supervised", 0], max(bought, key=lambda model: bought[model])
        said.append(
            f"{unlabeled} unlabeled images per class bought {bought[best] - base:+.1f} points: "
            f"{paper.title(best)} reaches {bought[best]:.1f} % where the supervised model has "
            f"{base:.1f} %."
        )
    plain = "soft_kmeans"
    if kept and unlabeled and plain in kept and plain in bought:
        robust = max(kept, key=lambda model: kept[model])
        said.append(
            f"With as many distractors in the pile, Soft k-Means falls by "
            f"{bought[plain] - kept[plain]:.1f} points to {kept[plain]:.1f} %, while "
            f"{paper.title(robust)} keeps {kept[robust]:.1f} %."
        )
    return said


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
    dataset, preset, updates = records[0]["dataset"], records[0]["preset"], records[0]["updates"]
    which = shlex.join(["--dataset", dataset, "--preset", preset])
    command = f"semishot reproduce {name} {which} --splits {len(split_seeds(records))}"
    if updates != presets.preset(preset, dataset).recipe.updates:
        command += f" --updates {updates}"
    shots, models = {r["shot"] for r in records}, {r["model"] for r in records}
    if shots < set(table.shots):
        command += " --shots " + " ".join(str(shot) for shot in table.shots if shot in shots)
    if models != set(paper.MODELS):
        command += " --models " + shlex.join(row for row in rows_of(records) if row in models)
    return command


def table_as_json(table: paper.Table, records: Sequence[Record]) -> str:
    """A table's cells as plain data, beside the published ones."""
    found = []
    for shot, m in parts_of(table, records):
        for (model, h), ours in cells(records, shot, m).items():
            if ours is None:
                continue
            where = {"model": model, "shot": shot, "distractors": h, "unlabeled": m}
            cell: dict[str, Any] = {**where, **ours.as_json()}
            if published := table.cells.get((model, shot, h)):
                cell["paper_accuracy"] = published.mean / 100
                cell["paper_standard_error"] = published.error / 100
            if later := table.later.get((model, shot, h)):
                cell["published_accuracy"] = later.mean / 100
                cell["published_by"] = later.source
            found.append(cell)
    return json.dumps(found, indent=1)


def records_as_text(records: Sequence[Record]) -> str:
    """One line per run, then the mean; both kinds of ± are named."""
    header = ["model", "split seed", "accuracy %", "± 95 % over episodes"]
    rows: list[list[Cell]] = [
        [
            r["model"],
            r["split_seed"],
            Number(100 * r["accuracy"]),
            Number(100 * r["accuracy_ci95"]),
        ]
        for r in records
    ]
    lines = [grid_as_text(Grid("", header, rows))]
    for model in dict.fromkeys(r["model"] for r in records):
        mean = cell(r for r in records if r["model"] == model)
        if mean and mean.splits > 1:
            error = f"{mean.error:.2f} (standard error over {mean.splits} splits)"
            lines.append(f"{model}: mean {mean.mean:.2f} ± {error}")
    return "\n".join(lines)
