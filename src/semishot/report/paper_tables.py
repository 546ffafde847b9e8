"""Tables 1 to 3 and 5: records -> cells beside the paper's, as a section or as JSON."""

import json
from collections.abc import Iterable, Sequence
from itertools import product

from semishot.paper import presets
from semishot.paper import published as paper
from semishot.paper.requests import Table5Request
from semishot.report.provenance import about_images, section_of, split_seeds
from semishot.report.tables import (
    AGREES,
    Grid,
    GridCell,
    Measured,
    Number,
    Section,
    beside,
    measured,
    row_of,
)
from semishot.training.config import SUPERVISED
from semishot.training.records import BaselineRecord, Record
from semishot.training.run_folder import PARTIAL

NOT_THE_TABLE = (
    "Classes of the data set are missing: these numbers cannot be compared with the paper's."
)
REPRODUCTIONS = ("ren2018", "ren2018-text")
"""Presets with the paper's recipe. A preset does not choose images: `data prepare` does."""
OVERVIEW = ["table", "preset", "updates", "cells measured", "agree", "above", "below"]
COLUMNS = {0: "no distractors", 5: "w/ distractors"}
Cells = dict[tuple[str, int], Measured | None]
"""By model and number of distractor classes."""


def cells(records: Sequence[Record], shot: int, unlabeled: int) -> Cells:
    """What was measured at this shot and M."""

    def is_of(record: Record, model: str, distractors: int) -> bool:
        own = row_of(record), record["shot"], record["unlabeled"], record["distractors"]
        return own == (model, shot, unlabeled, distractors)

    return {
        # the supervised model ignores unlabeled images: both columns show one number
        (model, h): measured(r for r in records if is_of(r, model, h * (model != SUPERVISED)))
        for model in rows_of(records)
        for h in paper.DISTRACTORS
    }


def rows_of(records: Iterable[Record]) -> list[str]:
    """What was measured: the models of the paper, then any others and those with options."""
    own = [row_of(record) for record in records]
    return [row for row in paper.rows(own) if row in own]


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
    for model in dict.fromkeys(model for (model, _), ours in own.items() if ours):
        row: list[GridCell] = [paper.title(model)]
        for h in paper.DISTRACTORS:
            ours = own[model, h]
            row.append(ours.number(most) if ours else None)
            row += beside(ours, table.cells.get((model, shot, h))) if beside_paper else []
        rows.append(row)
    caption = f"{shot}-shot, M = {unlabeled} unlabeled images per class, {most} splits"
    return Grid(caption, header, rows)


def table_section(name: str, table: paper.PaperTable, records: Sequence[Record]) -> Section:
    """A table, a grid for each shot and M at test."""
    dataset, preset, updates = records[0]["dataset"], records[0]["preset"], records[0]["updates"]
    beside_paper = is_beside_paper(table, records)
    others = set(rows_of(records)) - set(paper.MODELS)
    title = table.title if beside_paper else "The five models" + (" and others" if others else "")
    about = presets.preset(preset, dataset).about
    parts, prepared = parts_of(table, records), records[0].get("preparation")
    note = f"{about[0].upper()}{about[1:]}. "
    finding = NOT_THE_TABLE if prepared == PARTIAL else ""
    first, *more = ([name, *table_flags(table, own)] for own in by_options(records))
    return section_of(
        records,
        f"{title} ({dataset}, 5-way), preset `{preset}`, {updates:,} updates",
        [table_grid(table, records, *part) for part in parts],
        first,
        (note + (about_images(records) if preset in REPRODUCTIONS else "")).strip(),
        agreement(table, records) if beside_paper else finding,
        summary=summary(table, records) if beside_paper else [],
        more=more,
    )


def summary(table: paper.PaperTable, records: Sequence[Record]) -> list[GridCell]:
    """The row of the overview: cells that the paper has too, at the first M."""
    parts, first = parts_of(table, records), records[0]
    at_first_m = [part for part in parts if part[1] == parts[0][1]]
    scores = [z for part in at_first_m for z in z_scores(table, records, *part)]
    all_cells = sum(not cell.source for cell in table.cells.values())
    prepared = first.get("preparation")
    return [
        f"{table.title}, {first['dataset']}" + (f", {prepared}" if prepared else ""),
        first["preset"],
        Number(first["updates"], decimals=0),
        Number(len(scores), decimals=0, note=f"of {all_cells}"),
        *verdicts(scores),
    ]


def overview(made: Iterable[Section]) -> Grid:
    caption = "Cells that the paper has too, at the first M; |z| <= 2 agrees"
    return Grid(caption, OVERVIEW, [section.summary for section in made if section.summary])


def z_scores(
    table: paper.PaperTable, records: Sequence[Record], shot: int, unlabeled: int
) -> list[float | None]:
    """z of each cell measured at this shot and M that the paper has too."""
    return [
        ours.z(theirs)
        for (model, h), ours in cells(records, shot, unlabeled).items()
        if ours and (theirs := table.cells.get((model, shot, h))) and not theirs.source
    ]


def verdicts(scores: Sequence[float | None]) -> tuple[int, int, int]:
    """How many cells agree with the paper's, |z| <= 2, and how many are above and below."""
    known = [z for z in scores if z is not None]
    above, below = sum(z > AGREES for z in known), sum(z < -AGREES for z in known)
    return len(known) - above - below, above, below


def agreement(table: paper.PaperTable, records: Sequence[Record]) -> str:
    """For each shot and M: how many cells agree with the paper's, and the range of z."""
    sentences = []
    for shot, m in parts_of(table, records):
        if known := [z for z in z_scores(table, records, shot, m) if z is not None]:
            agree, above, below = verdicts(known)
            sentences.append(
                f"{shot}-shot, M = {m}: {agree} of {len(known)} cells agree, {above} above, "
                f"{below} below (z {min(known):+.1f} to {max(known):+.1f})"
            )
    return f"{'; '.join(sentences)}." if sentences else ""


def by_options(records: Sequence[Record]) -> list[list[Record]]:
    """The records that one command makes: one has the same options for all its methods."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(json.dumps(record["options"]), []).append(record)
    return list(groups.values())


def table_flags(table: paper.PaperTable, records: Sequence[Record]) -> list[str]:
    """The flags that measure these records of a table, which may be incomplete."""
    flags = ["--preset", records[0]["preset"], *splits_and_updates(records)]
    shots, models = {r["shot"] for r in records}, {r["model"] for r in records}
    if shots < set(table.shots):
        flags += ["--shots", *(str(shot) for shot in table.shots if shot in shots)]
    if models != set(paper.MODELS):
        flags += ["--models", *(m for m in paper.rows(r["model"] for r in records) if m in models)]
    if options := records[0]["options"]:
        flags += ["--options", *(str(word) for pair in options.items() for word in pair)]
    return flags + (["--partial"] if records[0].get("preparation") == PARTIAL else [])


def splits_and_updates(records: Sequence[Record]) -> list[str]:
    """The flags for both; the number of updates only if it is not the preset's."""
    record, splits = records[0], len(split_seeds(records))
    usual = presets.exists(record["preset"], record["dataset"]) and (
        record["updates"] == presets.preset(record["preset"], record["dataset"]).recipe.updates
    )
    return ["--splits", str(splits), *([] if usual else ["--updates", str(record["updates"])])]


# Table 5

USUAL_UPDATES = 4_000
"""Of the pre-training."""
TABLE5_NOTES = {
    "": "±: half the 95 % interval over episodes; `over splits`: the standard error. LR: 200 steps of Adam, "
    "as the authors'; LR, converged: scikit-learn's.",
    "authors_random": "The paper's `CNN rnd` is the authors', one network in every run.",
    "scale_bug": "Scale bug: pre-trained on pixels from 0 to 255, as is the paper's `CNN pre` on Omniglot "
    "and tieredImageNet.",
}
"""By the features or the option that they are about; the first is about all."""


def table5_section(records: Sequence[BaselineRecord]) -> Section:
    dataset, updates = records[0]["dataset"], max(r["updates"] for r in records)
    shown = {
        "",
        *(r["features"] for r in records),
        *(name for r in records for name in r["options"]),
    }
    notes = [about_images(records), *(text for of, text in TABLE5_NOTES.items() if of in shown)]
    trained = f", pre-trained for {updates:,} updates" if updates else ""
    return section_of(
        records,
        f"Table 5 ({dataset}, 5-way){trained}",
        [table5_grid(records)],
        ["table5", *table5_flags(records)],
        " ".join(note for note in notes if note),
    )


def table5_flags(records: Sequence[BaselineRecord]) -> list[str]:
    """What is not the default of the command."""
    usual, flags = Table5Request(), []
    seen = {r["features"] for r in records}
    if seen != set(usual.features):
        flags += ["--features", *(features for features in paper.FEATURES if features in seen)]
    if any(r["options"] for r in records):
        flags.append("--with-scale-bug")
    if (splits := len(split_seeds(records))) != usual.splits:
        flags += ["--splits", str(splits)]
    if (updates := max(r["updates"] for r in records)) not in (0, USUAL_UPDATES):
        flags += ["--updates", str(updates)]
    return flags


def table5_grid(records: Sequence[BaselineRecord]) -> Grid:
    """One data set, beside the paper's numbers where it has a cell."""
    dataset, own = records[0]["dataset"], table5_cells(records)
    shots = sorted({shot for *_, shot in own})
    header = ["model", "splits"]
    for shot in shots:
        header += [f"{shot}-shot", "over splits", "paper", "difference"]
    rows = []
    for classifier, features, bug in dict.fromkeys(key[:3] for key in own):
        by_shot = {shot: own.get((classifier, features, bug, shot)) for shot in shots}
        label = f"{paper.CLASSIFIERS[classifier]} {paper.FEATURES[features]}"
        splits = max(ours.splits for ours in by_shot.values() if ours)
        row: list[GridCell] = [label + ", scale bug" * bug, splits]
        for shot, ours in by_shot.items():
            over_splits = Number(ours.error, form="error") if ours and ours.splits > 1 else None
            row += [Number(ours.mean, ours.interval) if ours else None, over_splits]
            row += beside(ours, paper.published_baseline(dataset, shot, classifier, features))
        rows.append(row)
    return Grid("", header, rows)


def table5_cells(records: Sequence[BaselineRecord]) -> dict[tuple[str, str, bool, int], Measured]:
    """By classifier, features, scale bug and shot, in the order of the table."""
    groups: dict[tuple[str, str, bool, int], list[BaselineRecord]] = {}
    for r in records:
        key = r["model"], r["features"], bool(r["options"].get("scale_bug")), r["shot"]
        groups.setdefault(key, []).append(r)
    kinds = [*((features, False) for features in paper.FEATURES), ("pretrained", True)]
    order = product(paper.CLASSIFIERS, kinds, sorted({r["shot"] for r in records}))
    own = {(c, *kind, shot): measured(groups.get((c, *kind, shot), ())) for c, kind, shot in order}
    return {key: cell for key, cell in own.items() if cell}
