"""Tables 1 to 3: records -> cells beside the paper's, as a section or as JSON."""

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from semishot.errors import InputError
from semishot.paper import presets
from semishot.paper import published as paper
from semishot.report.provenance import (
    about_images,
    as_pairs,
    commands_for,
    prepared_as,
    provenance,
    split_seeds,
)
from semishot.report.section import Grid, GridCell, Number, Section
from semishot.report.statistics import (
    AGREES,
    Paired,
    chance,
    paired,
    standard_error,
    unbiased,
    z_score,
)
from semishot.training.code_state import PARTIAL
from semishot.training.config import SEMI_SUPERVISED_INFERENCE, SUPERVISED
from semishot.training.records import Record

NOT_THE_TABLE = (
    "Classes of the data set are missing: these numbers cannot be compared with the paper's."
)
VERDICTS = ("agree", "above", "below")
REPRODUCTIONS = ("ren2018", "ren2018-text")
"""Presets with the paper's recipe. A preset does not choose images: `data prepare` does."""
OVERVIEW = ["table", "preset", "updates", "cells measured", *VERDICTS]
COLUMNS = {0: "no distractors", 5: "w/ distractors"}


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
        """Of the difference to another mean with its standard error, as shown; one split has none."""
        return round(z_score(self.mean - mean, self.error, error), 1) if self.splits > 1 else None

    def as_json(self) -> dict[str, float | None]:
        """As fractions; one split has no standard error."""
        return {
            "accuracy": self.mean / 100,
            "standard_error_over_splits": self.error / 100 if self.splits > 1 else None,
            "mean_ci95_over_episodes": self.interval / 100,
            "splits": self.splits,
        }


def measured(records: Iterable[Record]) -> Measured | None:
    """The cell of these records, one for each split; None without records."""
    rows = list(records)
    if not rows:
        return None
    seeds = Counter(row["split_seed"] for row in rows)
    if twice := [seed for seed, count in seeds.items() if count > 1]:
        first = rows[0]
        raise InputError(
            f"{first['dataset']}, {first['model']}, {first['way']}-way {first['shot']}-shot, "
            f"M = {first['unlabeled']}, H = {first['distractors']}: two records of split seed {min(twice)}; "
            "remove one of them from the result files"
        )
    accuracies = 100 * np.array([row["accuracy"] for row in rows])
    interval = 100 * float(np.mean([row["accuracy_ci95"] for row in rows]))
    error = standard_error(accuracies.tolist())
    return Measured(float(accuracies.mean()), error, interval, len(rows))


@dataclass(frozen=True)
class Column:
    """A column of a table: shot, M at test, and distractor classes."""

    shot: int
    unlabeled: int
    distractors: int

    def holds(self, record: Record, model: str) -> bool:
        # the supervised model ignores unlabeled images: both columns show one number
        distractors = 0 if model == SUPERVISED else self.distractors
        own = record["model"], record["shot"], record["unlabeled"], record["distractors"]
        return own == (model, self.shot, self.unlabeled, distractors)

    def by_split(self, records: Iterable[Record], model: str) -> dict[int, float]:
        """The accuracies in % of a model, by split seed."""
        return {r["split_seed"]: 100 * r["accuracy"] for r in records if self.holds(r, model)}


def columns(shot: int, unlabeled: int) -> list[Column]:
    return [Column(shot, unlabeled, h) for h in paper.DISTRACTORS]


def cells(
    records: Iterable[Record], shot: int, unlabeled: int
) -> dict[tuple[str, int], Measured | None]:
    """What was measured at this shot and M, by model and number of distractor classes."""
    records = list(records)
    return {
        (model, column.distractors): measured(r for r in records if column.holds(r, model))
        for model in rows_of(records)
        for column in columns(shot, unlabeled)
    }


def rows_of(records: Iterable[Record]) -> list[str]:
    """The models of the paper, then any others that were measured."""
    return paper.rows(record["model"] for record in records)


def parts_of(table: paper.PaperTable, records: Sequence[Record]) -> list[tuple[int, int]]:
    """The (shot, M) of a table at which something was measured."""
    known = {(r["shot"], r["unlabeled"]) for r in records}
    return [(shot, m) for shot in table.shots for m in table.tests if (shot, m) in known]


def is_beside_paper(table: paper.PaperTable, records: Sequence[Record]) -> bool:
    """Whether the paper's numbers are of this data set, with all its classes."""
    first = records[0]
    return first["dataset"] == table.dataset and first.get("preparation") != PARTIAL


def table_grid(
    table: paper.PaperTable, records: Sequence[Record], shot: int, unlabeled: int
) -> Grid:
    """One shot and M; beside the paper's numbers where the data set is the paper's."""
    beside_paper, own = is_beside_paper(table, records), cells(records, shot, unlabeled)
    most = max(ours.splits for ours in own.values() if ours)
    header = ["model"]
    for h in paper.DISTRACTORS:
        header += [COLUMNS[h], *(["paper", "difference"] if beside_paper else [])]
    rows = []
    for model in rows_of(records):
        row: list[GridCell] = [paper.title(model)]
        for h in paper.DISTRACTORS:
            ours = own[model, h]
            row.append(ours.number(most) if ours else None)
            if beside_paper:
                theirs, later = table.cells.get((model, shot, h)), table.later.get((model, shot, h))
                if theirs is None and later is not None:
                    gap = Number(ours.mean - later.mean, form="difference") if ours else None
                    row += [Number(later.mean, note=later.source), gap]
                else:
                    row += beside(ours, theirs, unbiased(theirs.error) if theirs else 0.0)
        rows.append(row)
    caption = f"{shot}-shot, M = {unlabeled} unlabeled images per class at test, {most} splits"
    return Grid(caption, header, rows)


def beside(
    ours: Measured | None, theirs: paper.PublishedCell | None, error: float
) -> list[GridCell]:
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


def table_section(name: str, table: paper.PaperTable, records: Sequence[Record]) -> Section:
    """A table, a grid for each shot and M at test."""
    dataset, preset, updates = records[0]["dataset"], records[0]["preset"], records[0]["updates"]
    beside_paper = is_beside_paper(table, records)
    more = set(rows_of(records)) - set(paper.MODELS)
    title = table.title if beside_paper else "The five models" + (" and others" if more else "")
    aim = presets.preset(preset, dataset).about
    parts, prepared = parts_of(table, records), records[0].get("preparation")
    beside_cells = {key for part in parts for key in z_scores(table, records, *part)}
    at_first_m = [part for part in parts if part[1] == parts[0][1]]
    verdicts = sum((verdicts_of(table, records, *part) for part in at_first_m), Counter[str]())
    summary: list[GridCell] = [
        f"{title}, {dataset}" + (f", {prepared}" if prepared else ""),
        preset,
        Number(updates, decimals=0),
        Number(len(beside_cells), decimals=0, note=f"of {len(table.cells)}"),
        *(verdicts[word] for word in VERDICTS),
    ]
    findings = [
        NOT_THE_TABLE if prepared == PARTIAL else "",
        agreement(table, records) if beside_paper else "",
        paired_differences(records, at_first_m),
        *settings_at_test(records),
    ]
    return Section(
        f"{title} ({dataset}, 5-way), preset `{preset}`, {updates:,} updates"
        + prepared_as(records),
        [table_grid(table, records, *part) for part in parts],
        provenance(records),
        commands_for(records, table_command(name, table, records)),
        [
            f"{aim[0].upper()}{aim[1:]}.",
            *(about_images(records) if preset in REPRODUCTIONS else []),
        ],
        [text for text in findings if text],
        summary=summary if beside_paper else [],
    )


def overview(made: Iterable[Section]) -> Grid:
    caption = "Cells that the paper has too, at the first M; |z| <= 2 agrees"
    return Grid(caption, OVERVIEW, [section.summary for section in made if section.summary])


def z_scores(
    table: paper.PaperTable, records: Sequence[Record], shot: int, unlabeled: int
) -> dict[tuple[str, int, int], float | None]:
    """The cells measured at this shot and M that the paper has too, each with its z."""
    scores: dict[tuple[str, int, int], float | None] = {}
    for (model, h), ours in cells(records, shot, unlabeled).items():
        theirs = table.cells.get((model, shot, h))
        if ours and theirs:
            scores[model, shot, h] = ours.z(theirs.mean, unbiased(theirs.error))
    return scores


def verdicts_of(
    table: paper.PaperTable, records: Sequence[Record], shot: int, unlabeled: int
) -> Counter[str]:
    """How many cells agree with the paper's, |z| <= 2, and how many are above or below."""
    known = [z for z in z_scores(table, records, shot, unlabeled).values() if z is not None]
    return Counter("agree" if abs(z) <= AGREES else "above" if z > 0 else "below" for z in known)


def agreement(table: paper.PaperTable, records: Sequence[Record]) -> str:
    """For each shot and M: how many cells agree with the paper's, and the range of z."""
    sentences = []
    for shot, m in parts_of(table, records):
        known = [z for z in z_scores(table, records, shot, m).values() if z is not None]
        count = verdicts_of(table, records, shot, m)
        if known:
            sentences.append(
                f"{shot}-shot, M = {m}: {count['agree']} of {len(known)} cells agree with the paper's, "
                f"{count['above']} above, {count['below']} below (z {min(known):+.1f} to {max(known):+.1f})"
            )
    return f"{'; '.join(sentences)}." if sentences else ""


def paired_differences(records: Sequence[Record], parts: Sequence[tuple[int, int]]) -> str:
    """Differences split by split: over the method that does not train with unlabeled images, and of the
    highest row over the next."""
    at = [column for part in parts for column in columns(*part)]
    sentences, splits = [], set[int]()
    for what, compare in PAIRED.items():
        lines = []
        for column in at:
            gaps = {label: gap for label, gap in compare(records, column).items() if gap}
            each = [f"{label % gap.mean} (t {gap.t:+.1f})" for label, gap in gaps.items()]
            where = f"{column.shot}-shot " * (len(parts) > 1) + COLUMNS[column.distractors]
            lines += [f"{where}: {', '.join(each)}"] if each else []
            splits |= {gap.splits for gap in gaps.values()}
        sentences += [f"{what}, {'; '.join(lines)}."] if lines else []
    needed = " or ".join(f"{chance(count):.1f} ({count} splits)" for count in sorted(splits))
    lead = f"Paired by split, M = {parts[0][1]}; |t| beyond {needed} is more than chance."
    return " ".join([lead, *sentences]) if sentences else ""


Gaps = dict[str, Paired | None]
"""By what is compared, with `%+.2f` for the difference."""


def over_inference(records: Sequence[Record], column: Column) -> Gaps:
    if not column.unlabeled:
        return {}
    base = column.by_split(records, SEMI_SUPERVISED_INFERENCE)
    methods = [m for m in rows_of(records) if m not in (SUPERVISED, SEMI_SUPERVISED_INFERENCE)]
    return {f"{paper.title(m)} %+.2f": paired(column.by_split(records, m), base) for m in methods}


def over_next(records: Sequence[Record], column: Column) -> Gaps:
    by_row = {model: column.by_split(records, model) for model in rows_of(records)}
    known = [model for model, own in by_row.items() if own]
    ranked = sorted(known, key=lambda model: -fmean(by_row[model].values()))
    if len(ranked) < 2:
        return {}
    first, second = ranked[:2]
    label = f"{paper.title(first)} %+.2f over {paper.title(second)}"
    return {label: paired(by_row[first], by_row[second])}


PAIRED = {
    "Over Semi-Supervised Inference": over_inference,
    "Highest row over the next": over_next,
}


def settings_at_test(records: Sequence[Record]) -> list[str]:
    """Methods that refine at test with other settings in each column, so they are told of distractors."""
    known = {(r["model"], r["distractors"]): r["at_test"] for r in records if "at_test" in r}
    sentences = []
    for model in dict.fromkeys(model for model, _ in known):
        own = {h: known[model, h] for h in paper.DISTRACTORS if (model, h) in known}
        if len(own) == 2 and own[0] != own[5]:
            each = "; ".join(f"{COLUMNS[h]}: {as_pairs(setting)}" for h, setting in own.items())
            sentences.append(
                f"{paper.title(model)} is told at test whether there are distractors ({each})."
            )
    return sentences


def table_command(name: str, table: paper.PaperTable, records: Sequence[Record]) -> str:
    """The command that measures these records of a table, which may be incomplete."""
    which = shlex.join(["--dataset", records[0]["dataset"], "--preset", records[0]["preset"]])
    command = f"semishot reproduce {name} {which} --splits {len(split_seeds(records))}"
    command += "".join(f" {word}" for word in updates_of(records[0]))
    shots, models = {r["shot"] for r in records}, {r["model"] for r in records}
    if shots < set(table.shots):
        command += " --shots " + " ".join(str(shot) for shot in table.shots if shot in shots)
    if models != set(paper.MODELS):
        command += " --models " + shlex.join(row for row in rows_of(records) if row in models)
    return command + (" --partial" if records[0].get("preparation") == PARTIAL else "")


def updates_of(record: Record) -> list[str]:
    """The flag for the number of updates, if it is not the preset's."""
    dataset, preset, updates = record["dataset"], record["preset"], record["updates"]
    known = presets.exists(preset, dataset)
    usual = known and updates == presets.preset(preset, dataset).recipe.updates
    return [] if usual else ["--updates", str(updates)]


def table_as_json(table: paper.PaperTable, records: Sequence[Record]) -> str:
    """A table's cells as plain data, beside the published ones."""
    made, beside_paper = [], is_beside_paper(table, records)
    for shot, m in parts_of(table, records):
        for (model, h), ours in cells(records, shot, m).items():
            if ours is None:
                continue
            where = {"model": model, "shot": shot, "distractors": h, "unlabeled": m}
            cell: dict[str, Any] = {**where, **ours.as_json()}
            published, later = (
                of.get((model, shot, h)) if beside_paper else None
                for of in (table.cells, table.later)
            )
            if isinstance(published, paper.PublishedCell):
                cell["paper_accuracy"] = published.mean / 100
                cell["paper_standard_error"] = published.error / 100
                z = ours.z(published.mean, unbiased(published.error))
                cell |= {} if z is None else {"z": z}
            if isinstance(later, paper.LaterCell):
                cell |= {"published_accuracy": later.mean / 100, "published_by": later.source}
            made.append(cell)
    return json.dumps(made, indent=1)
