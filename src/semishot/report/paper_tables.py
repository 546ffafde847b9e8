"""Tables 1 to 3 and 5, accuracy over unlabeled images, ablations: records -> sections, beside the paper's."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from operator import itemgetter
from typing import cast, get_args

from semishot.paper import presets, published
from semishot.paper.requests import AblationRequest, Features, Table5Request, TableRequest
from semishot.report.charts import Chart
from semishot.report.provenance import (
    about_images,
    again,
    section_of,
    split_seeds,
    unusual_updates,
)
from semishot.report.tables import (
    Grid,
    GridCell,
    Number,
    Section,
    beside,
    grid_of,
    grouped,
    line_of,
    measured,
    paired,
)
from semishot.training.config import SUPERVISED
from semishot.training.records import AblationRecord, BaselineRecord, Record
from semishot.training.run_folder import PARTIAL

NOT_THE_TABLE = (
    "Classes of the data set are missing: these numbers cannot be compared with the paper's."
)
REPRODUCTIONS = ("ren2018", "ren2018-text")
"""Presets with the paper's recipe. A preset does not choose images: `data prepare` does."""
COLUMNS = {0: "no distractors", 5: "w/ distractors"}


def in_both_columns(records: Iterable[Record]) -> list[Record]:
    """Records in the order of the rows. The supervised model ignores unlabeled images: it has one number for
    both columns."""
    own = [*records]
    for r in records:
        if r["model"] == SUPERVISED:
            own += [cast(Record, {**r, "distractors": h}) for h in published.DISTRACTORS[1:]]
    rows = published.rows(map(published.row_of, own))
    return sorted(own, key=lambda r: (rows.index(published.row_of(r)), r["distractors"]))


def title_of(record: Record) -> str:
    return published.title(published.row_of(record))


# Tables 1 to 3


def parts_of(table: published.PaperTable, records: Sequence[Record]) -> list[tuple[int, int]]:
    """The (shot, M) of a table at which something was measured."""
    known = {(r["shot"], r["unlabeled"]) for r in records}
    return [part for part in product(table.shots, table.tests) if part in known]


def is_beside_paper(table: published.PaperTable, record: Record) -> bool:
    """Whether the paper's numbers are of this data set, with all its classes."""
    return record["dataset"] == table.dataset and record.get("preparation") != PARTIAL


def table_grid(
    table: published.PaperTable, records: Sequence[Record], shot: int, unlabeled: int
) -> Grid:
    """One shot and M; beside the paper's numbers where the data set is the paper's."""
    chosen = [r for r in records if (r["shot"], r["unlabeled"]) == (shot, unlabeled)]
    most = max(Counter((published.row_of(r), r["distractors"]) for r in chosen).values())
    more = ["paper", "difference"] if is_beside_paper(table, records[0]) else []

    def cells(row: list[Record], h: int, own: list[Record]) -> list[GridCell]:
        ours, theirs = measured(own), published.cell_of(row[0], distractors=h)
        return [ours.number(most) if ours else None, *(beside(ours, theirs) if more else [])]

    both = in_both_columns(chosen)
    grid = grid_of(both, {"model": title_of}, "distractors", COLUMNS, more, cells)
    caption = f"{shot}-shot, M = {unlabeled} unlabeled images per class, {most} splits"
    return replace(grid, caption=caption + agreement(grid))


def table_section(table: published.PaperTable, records: Sequence[Record]) -> Section:
    """A table, a grid for each shot and M at test."""
    first, is_the_papers = records[0], is_beside_paper(table, records[0])
    dataset, preset = first["dataset"], first["preset"]
    grids = [table_grid(table, records, *part) for part in parts_of(table, records)]
    others = {r["model"] for r in records} - set(published.MODELS)
    title = table.title if is_the_papers else "The five models" + " and others" * bool(others)
    about = presets.preset(preset, dataset).about
    images = about_images(records) if preset in REPRODUCTIONS else ""
    return section_of(
        records,
        f"{title} ({dataset}, 5-way), preset `{preset}`, {first['updates']:,} updates",
        grids,
        table_commands(table, records),
        f"{about[0].upper()}{about[1:]}. {images}".strip(),
        NOT_THE_TABLE if first.get("preparation") == PARTIAL else "",
        summary=summary(table, records, grids) if is_the_papers else [],
    )


def table_commands(table: published.PaperTable, records: Sequence[Record]) -> list[str]:
    """The command of each set of options: one has the same for all its methods."""
    commands = []
    for own in grouped(records, lambda r: json.dumps(r["options"])).values():
        first, models = own[0], {r["model"] for r in own}
        rows = tuple(row for row in published.rows(r["model"] for r in own) if row in models)
        shots = tuple(shot for shot in table.shots if shot in {r["shot"] for r in own})
        usual = presets.preset(first["preset"], first["dataset"]).models or published.MODELS
        request = TableRequest(
            first["dataset"],
            first["preset"],
            splits=len(split_seeds(own)),
            shots=() if shots == table.shots else shots,
            models=() if models == {*usual} else rows,
            options=first["options"],
            updates=unusual_updates(first),
            partial=first.get("preparation") == PARTIAL,
        )
        commands.append(again(table.name, request))
    return commands


def summary(
    table: published.PaperTable, records: Sequence[Record], grids: Sequence[Grid]
) -> list[GridCell]:
    """The row of the overview: cells that the paper has too, at the first M."""
    first, prepared = records[0], records[0].get("preparation")
    parts = parts_of(table, records)
    at_first_m = [grid for (_, m), grid in zip(parts, grids, strict=True) if m == parts[0][1]]
    gaps = [gap for grid in at_first_m for gap in differences(grid)]
    every = sum(own[0] == table.dataset and own[1] in published.MODELS for own in published.CELLS)
    return [
        f"{table.title}, {first['dataset']}" + (f", {prepared}" if prepared else ""),
        first["preset"],
        Number(first["updates"], decimals=0),
        Number(len(gaps), decimals=0, note=f"of {every}"),
        *verdicts(gaps),
    ]


def differences(grid: Grid) -> list[Number]:
    """From the paper's cells, not from those of later papers."""
    pairs = [pair for row in grid.rows for pair in pairwise(row)]
    numbers = [(a, b) for a, b in pairs if isinstance(a, Number) and isinstance(b, Number)]
    return [gap for theirs, gap in numbers if gap.form == "difference" and not theirs.note]


def verdicts(gaps: Iterable[Number]) -> tuple[int, int, int]:
    """How many cells agree with the paper's, |z| <= 2, and how many are above and below."""
    tones = Counter(gap.tone for gap in gaps if gap.ratio is not None)
    return tones[""], tones["above"], tones["below"]


def agreement(grid: Grid) -> str:
    """How many cells agree with the paper's, and the range of z."""
    gaps = differences(grid)
    scores = [gap.ratio for gap in gaps if gap.ratio is not None]
    if not scores:
        return ""
    agree, above, below = verdicts(gaps)
    ends = f"(z {min(scores):+.1f} to {max(scores):+.1f})"
    return f"; {agree} of {len(scores)} cells agree, {above} above, {below} below {ends}"


def overview(made: Iterable[Section]) -> Grid:
    caption = "Cells that the paper has too, at the first M; |z| <= 2 agrees"
    header = ["table", "preset", "updates", "cells measured", "agree", "above", "below"]
    return Grid(caption, header, [section.summary for section in made if section.summary])


# Accuracy over unlabeled images (Figures 4 and 6)


def curves_section(records: Sequence[Record]) -> Section:
    """For each shot a grid, and for each of its columns a chart with a line for each model."""
    first, grids, charts = records[0], list[Grid](), list[Chart]()
    table = published.table(published.FIGURE_UNLABELED, first["dataset"])
    for shot in sorted({r["shot"] for r in records}):
        own = in_both_columns([r for r in records if r["shot"] == shot])
        caption = f"{shot}-shot, by M unlabeled images per class"
        both = curves_grid(table, own, lambda r: f"{title_of(r)}, {COLUMNS[r['distractors']]}")
        grids.append(replace(both, caption=caption))
        for h, name in COLUMNS.items():
            column = curves_grid(table, [r for r in own if r["distractors"] == h], title_of)
            lines = [
                line_of(str(label), look, table.tests, numbers)
                for look, (label, *numbers) in enumerate(column.rows)
            ]
            lines = [line for line in lines if len(line.points) > 1]
            title, x_label = f"5-way {shot}-shot, {name}", "unlabeled images per class at test"
            charts += [Chart(title, x_label, "accuracy (%)", lines)] if lines else []
    title = f"{table.title}: {first['dataset']}, preset `{first['preset']}`"
    title += f", {first['updates']:,} updates"
    return section_of(records, title, grids, table_commands(table, records), charts=charts)


def curves_grid(
    table: published.PaperTable, records: Sequence[Record], row: Callable[[Record], str]
) -> Grid:
    """Accuracy at each M, for each model and column measured."""

    def cells(_: list[Record], m: int, own: list[Record]) -> list[GridCell]:
        ours = measured(own)
        return [ours.number() if ours else None]

    columns = {m: f"M = {m}" for m in table.tests}
    return grid_of(records, {"model": row}, "unlabeled", columns, (), cells)


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
    seen, usual = {r["features"] for r in records}, Table5Request().features
    bug, splits = any(r["options"] for r in records), len(split_seeds(records))
    features = usual if seen == {*usual} else tuple(f for f in get_args(Features) if f in seen)
    other = updates if updates not in (0, USUAL_UPDATES) else None
    shown = {"", *seen, *(["scale_bug"] if bug else [])}
    notes = [about_images(records), *(text for of, text in TABLE5_NOTES.items() if of in shown)]
    trained = f", pre-trained for {updates:,} updates" if updates else ""
    return section_of(
        records,
        f"Table 5 ({dataset}, 5-way){trained}",
        [table5_grid(records)],
        [again("table5", Table5Request(dataset, features, bug, splits, other))],
        " ".join(note for note in notes if note),
    )


def table5_grid(records: Sequence[BaselineRecord]) -> Grid:
    """One data set, beside the paper's numbers where it has a cell."""
    classifiers, features = [*published.CLASSIFIERS], [*published.FEATURES]

    def order(r: BaselineRecord) -> tuple[int, bool, int]:
        return classifiers.index(r["model"]), bool(r["options"]), features.index(r["features"])

    def title(r: BaselineRecord) -> str:
        label = f"{published.CLASSIFIERS[r['model']]} {published.FEATURES[r['features']]}"
        return label + ", scale bug" * bool(r["options"])

    def cells(row: list[BaselineRecord], shot: int, own: list[BaselineRecord]) -> list[GridCell]:
        ours, theirs = measured(own), published.cell_of(row[0], shot=shot)
        error = Number(ours.error, form="error") if ours and ours.splits > 1 else None
        return [Number(ours.mean, ours.interval) if ours else None, error, *beside(ours, theirs)]

    splits = {name: len(split_seeds(own)) for name, own in grouped(records, title).items()}
    return grid_of(
        sorted(records, key=order),
        {"model": title, "splits": lambda r: splits[title(r)]},
        "shot",
        {shot: f"{shot}-shot" for shot in sorted({r["shot"] for r in records})},
        ["over splits", "paper", "difference"],
        cells,
    )


# Ablations


def ablations_section(records: Sequence[AblationRecord]) -> Section:
    dataset, only, splits = records[0]["dataset"], records[0]["only"], len(split_seeds(records))
    tests = ", ".join(str(m) for m in sorted({r["unlabeled"] for r in records}))
    return section_of(
        records,
        f"What made the numbers ({dataset})" + (f": {only}" if only else ""),
        [ablations_grid(records)],
        [again("ablations", AblationRequest(dataset, splits, only))],
        f"One change at a time, M = {tests} at test. `difference`: from the preset's own cell, paired over "
        f"{splits} splits, with its 95 % interval and t.",
    )


def ablations_grid(records: Sequence[AblationRecord]) -> Grid:
    """Each variant beside the cell it is compared with, split by split, and beside the paper's."""
    base = {changed_from(r): 100 * r["accuracy"] for r in records if not r["variant"]}
    variants = [r for r in records if r["variant"]]
    if alone := [r["variant"] for r in variants if changed_from(r) not in base]:
        raise ValueError(f"{alone[0]!r} has no cell that it departs from")

    def cells(row: list[AblationRecord], _: int, own: list[AblationRecord]) -> list[GridCell]:
        ours = measured(own)
        if ours is None:
            return ["", "", ""]
        values = {r["split_seed"]: 100 * r["accuracy"] for r in own}
        bases = {r["split_seed"]: base[changed_from(r)] for r in own}
        theirs = published.cell_of(own[0]) if row[0]["preset"] == "ren2018" else None
        return [ours.number(), paired(values, bases), beside(ours, theirs)[1] if theirs else ""]

    head: dict[str, Callable[[AblationRecord], GridCell]] = {
        "preset": itemgetter("preset"),
        "updates": lambda r: Number(r["updates"], decimals=0),
        "model": lambda r: published.title(r["model"]),
        "change": itemgetter("variant"),
    }
    more = ["difference", "from the paper"]
    return grid_of(variants, head, "distractors", COLUMNS, more, cells)


def changed_from(record: AblationRecord) -> tuple[str, str, int, int]:
    """What a variant and the cell it is compared with have in common."""
    return record["preset"], record["model"], record["distractors"], record["split_seed"]
