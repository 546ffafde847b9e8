"""Tables 1 to 3: records -> a section, with what its numbers say beside the paper's and each other's."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from statistics import fmean

from semishot.paper import presets
from semishot.paper import published as paper
from semishot.report.image_preparations import about_images, prepare_command_of, prepared_as
from semishot.report.provenance import as_pairs, provenance, split_seeds
from semishot.report.section import Cell, Grid, Number, Section
from semishot.report.statistics import AGREES, FEW_SPLITS, Paired, chance, paired, unbiased
from semishot.report.tables import (
    COLUMNS,
    cell_commands,
    cells,
    is_beside_paper,
    parts_of,
    rows_of,
    table_grid,
)
from semishot.training.config import SEMI_SUPERVISED_INFERENCE
from semishot.training.origin import PARTIAL
from semishot.training.records import Record

Key = tuple[str, int, int]
"""A cell of the paper: model, shot, number of distractor classes."""
NOT_THE_TABLE = (
    "Classes of the data set are missing here: these numbers are not those of the paper's table and cannot "
    "be compared with them. They show that the command runs."
)
VERDICTS = ("agree", "above", "below")
REPRODUCTIONS = ("ren2018", "ren2018-text")
"""Presets with the paper's recipe. A preset does not choose images: `data prepare` does."""
OVERVIEW = ["table", "preset", "updates", "cells measured", *VERDICTS]


def overview(made: Iterable[Section]) -> Grid:
    caption = "Cells that the paper has too, at the first M; |z| <= 2 agrees"
    return Grid(caption, OVERVIEW, [section.summary for section in made if section.summary])


def table_section(name: str, table: paper.Table, records: Sequence[Record]) -> Section:
    """A table, a grid for each shot and M at test."""
    dataset, preset, updates = records[0]["dataset"], records[0]["preset"], records[0]["updates"]
    beside_paper = is_beside_paper(table, records)
    others = set(rows_of(records)) - set(paper.MODELS)
    title = table.title if beside_paper else "The five models" + (" and others" if others else "")
    known = presets.exists(preset, dataset)
    aim = presets.preset(preset, dataset).about if known else "a preset that this version lacks"
    parts, prepared = parts_of(table, records), records[0].get("preparation")
    held = {key for part in parts for key in beside_paper_cells(table, records, *part)}
    at_first_m = [part for part in parts if part[1] == parts[0][1]]
    verdicts = Counter[str]()
    for part in at_first_m:
        verdicts += verdicts_of(table, records, *part)
    summary: list[Cell] = [
        f"{title}, {dataset}" + (f", {prepared}" if prepared else ""),
        preset,
        Number(updates, decimals=0),
        Number(len(held), decimals=0, note=f"of {len(table.cells)}"),
        *(verdicts[word] for word in VERDICTS),
    ]
    said = [*findings(records, *parts[0]), *against_inference(records, *parts[0])]
    said += [*the_highest(records, at_first_m), *settings_at_test(records)]
    return Section(
        f"{title} ({dataset}, 5-way), preset `{preset}`, {updates:,} updates"
        + prepared_as(records),
        [table_grid(table, records, *part) for part in parts],
        provenance(records),
        cell_commands(name, table, records),
        prepare_command_of(records),
        aim=f"{aim[0].upper()}{aim[1:]}.",
        images=about_images(records) if preset in REPRODUCTIONS else "",
        comparison=comparison(table, records) if beside_paper and held else "",
        findings=[NOT_THE_TABLE, *said] if prepared == PARTIAL else said,
        is_complete=len(held) == len(table.cells),
        summary=summary if beside_paper else [],
    )


def beside_paper_cells(
    table: paper.Table, records: Sequence[Record], shot: int, unlabeled: int
) -> dict[Key, float | None]:
    """The cells measured at this shot and M that the paper has too, each with its z."""
    found: dict[Key, float | None] = {}
    for (model, h), ours in cells(records, shot, unlabeled).items():
        theirs = table.cells.get((model, shot, h))
        if ours and theirs:
            found[model, shot, h] = ours.z(theirs.mean, unbiased(theirs.error))
    return found


def verdicts_of(
    table: paper.Table, records: Sequence[Record], shot: int, unlabeled: int
) -> Counter[str]:
    """How many cells agree with the paper's, |z| <= 2, and how many are above or below."""
    scores = beside_paper_cells(table, records, shot, unlabeled).values()
    known = [z for z in scores if z is not None]
    return Counter("agree" if abs(z) <= AGREES else "above" if z > 0 else "below" for z in known)


def comparison(table: paper.Table, records: Sequence[Record]) -> str:
    """For each shot and M: how many cells agree with the paper's, and how far the others are off."""
    said = []
    for shot, m in parts_of(table, records):
        scores = beside_paper_cells(table, records, shot, m)
        known = [z for z in scores.values() if z is not None]
        count = verdicts_of(table, records, shot, m)
        where = f"{shot}-shot, M = {m}: "
        if not known:
            said.append(f"{where}{len(scores)} cells with one split each, so without an error.")
            continue
        said.append(
            f"{where}{count['agree']} of {len(known)} cells agree with the paper's (|z| <= 2), "
            f"{count['above']} above and {count['below']} below; z ranges from {min(known):+.1f} to "
            f"{max(known):+.1f}."
        )
    splits = len(split_seeds(records))
    if 1 < splits < FEW_SPLITS:
        said.append(
            f"With {splits} splits our errors are rough: by chance alone, |t| exceeds "
            f"{chance(splits):.1f} once in 20 times."
        )
    return " ".join(said)


def by_split(
    records: Iterable[Record], model: str, h: int, shot: int, unlabeled: int
) -> dict[int, float]:
    """The accuracies in % of a cell, by split seed."""
    column = 0 if model == "supervised" else h
    place = model, column, shot, unlabeled
    return {
        r["split_seed"]: 100 * r["accuracy"]
        for r in records
        if (r["model"], r["distractors"], r["shot"], r["unlabeled"]) == place
    }


def findings(records: Sequence[Record], shot: int, unlabeled: int) -> list[str]:
    """What unlabeled images gain and distractors cost, on the splits that both sides have."""
    means = {k: ours.mean for k, ours in cells(records, shot, unlabeled).items() if ours}
    methods = [model for model in rows_of(records) if model != "supervised"]
    gained = {model: means[model, 0] for model in methods if (model, 0) in means}
    kept = {model: means[model, 5] for model in methods if (model, 5) in means}
    said = []

    def on_both(*places: tuple[str, int]) -> tuple[list[float], Paired | None]:
        """The means of two cells over the splits that both have, if there are any, and their difference."""
        ours, theirs = (by_split(records, model, h, shot, unlabeled) for model, h in places)
        shared = [seed for seed in ours if seed in theirs]
        both = [fmean(cell[seed] for seed in shared) for cell in (ours, theirs) if shared]
        return both, paired(ours, theirs)

    best = max(gained, key=lambda model: gained[model], default="")
    both, gap = on_both((best, 0), ("supervised", 0))
    if unlabeled and both:
        known = f"paired t {gap.t:+.1f} over {gap.splits} splits" if gap else "one split, no error"
        gain = both[0] - both[1]
        if gain <= 0:
            verb = "no gain"
        elif gap and gap.verdict > 0:
            verb = f"{gain:+.1f} points"
        else:
            verb = f"{gain:+.1f} points, which may be chance"
        said.append(
            f"With {unlabeled} unlabeled images per class, {paper.title(best)}, the highest row, has "
            f"{both[0]:.1f} % and the supervised model {both[1]:.1f} %: {verb} ({known})."
        )
    plain = "soft_kmeans"
    both, gap = on_both((plain, 5), (plain, 0))
    if unlabeled and both:
        robust = max(kept, key=lambda model: kept[model])
        known = f"paired t {gap.t:+.1f}" if gap else "one split, no error"
        said.append(
            f"With an equal number of distractors in the pile, Soft k-Means changes by "
            f"{both[0] - both[1]:+.1f} points to {both[0]:.1f} % ({known}); "
            f"{paper.title(robust)}, the highest row there, has {kept[robust]:.1f} %."
        )
    return said


def against(
    what: str, table: paper.Table, records: Sequence[Record], others: Sequence[Record]
) -> list[str]:
    """How a table compares with the same one made with something else, split by split, at its first M."""
    said, parts = [], parts_of(table, records)
    at_first_m = [part for part in parts if part[1] == parts[0][1]]
    for (shot, unlabeled), h in product(at_first_m, paper.DISTRACTORS):
        gaps = {
            model: gap
            for model in rows_of(records)
            if (gap := paired(*(by_split(r, model, h, shot, unlabeled) for r in (records, others))))
        }
        if gaps:
            splits = max(gap.splits for gap in gaps.values())
            said.append(
                f"Compared with {what} on the same splits, {shot}-shot, M = {unlabeled}, {COLUMNS[h]}: "
                f"{listed(gaps)}; by chance, |t| exceeds {chance(splits):.1f} once in 20 times."
            )
    return said


def the_highest(records: Sequence[Record], parts: Sequence[tuple[int, int]]) -> list[str]:
    """In each column, how far the highest row is above the next, on the splits that both have."""
    said = []
    for shot, unlabeled in parts:
        for h in paper.DISTRACTORS:
            held = cells(records, shot, unlabeled)
            means = {model: ours.mean for (model, own), ours in held.items() if own == h and ours}
            order = sorted(means, key=lambda model: -means[model])[:2]
            gap = (
                paired(*(by_split(records, model, h, shot, unlabeled) for model in order))
                if len(order) == 2
                else None
            )
            if gap:
                chanced = "" if gap.verdict > 0 else ", which may be chance"
                said.append(
                    f"{shot}-shot, {COLUMNS[h]}: {paper.title(order[0])} {gap.mean:+.2f} over "
                    f"{paper.title(order[1])} (t {gap.t:+.1f}, {gap.splits} splits){chanced}"
                )
    return (
        [f"The highest row compared with the next, M = {parts[0][1]}: {'; '.join(said)}."]
        if said
        else []
    )


def settings_at_test(records: Sequence[Record]) -> list[str]:
    """Methods that refine at test with other settings in each column, so they are told of distractors."""
    held = {(r["model"], r["distractors"]): r["at_test"] for r in records if "at_test" in r}
    said = []
    for model in dict.fromkeys(model for model, _ in held):
        columns = {h: held[model, h] for h in paper.DISTRACTORS if (model, h) in held}
        if len(columns) < 2 or columns[0] == columns[5]:
            continue
        shown = "; ".join(f"{COLUMNS[h]}: {as_pairs(own)}" for h, own in columns.items())
        said.append(
            f"{paper.title(model)} has another setting at test in each column ({shown}), so it uses "
            "the knowledge of whether there are distractors."
        )
    return said


def listed(gaps: Mapping[str, Paired]) -> str:
    return ", ".join(
        f"{paper.title(m)} {gap.mean:+.2f} (t {gap.t:+.1f})" for m, gap in gaps.items()
    )


def by_chance(gaps: Mapping[str, Paired]) -> str:
    """|t| that chance exceeds, for each number of splits if there are several."""
    counts = sorted({gap.splits for gap in gaps.values()})
    if len(counts) == 1:
        return f"{chance(counts[0]):.1f}"
    return " and ".join(f"{chance(count):.1f} ({count} splits)" for count in counts)


def against_inference(records: Sequence[Record], shot: int, unlabeled: int) -> list[str]:
    """In each column, how the methods that train with unlabeled images compare with the one that does not."""
    said = []
    for h in paper.DISTRACTORS if unlabeled else ():
        base = by_split(records, SEMI_SUPERVISED_INFERENCE, h, shot, unlabeled)
        gaps = {
            model: gap
            for model in rows_of(records)
            if model not in ("supervised", SEMI_SUPERVISED_INFERENCE)
            and (gap := paired(by_split(records, model, h, shot, unlabeled), base))
        }
        if gaps:
            said.append(
                f"Compared with Semi-Supervised Inference on the same splits, {COLUMNS[h]}: "
                f"{listed(gaps)}; by chance, |t| exceeds {by_chance(gaps)} once in 20 times."
            )
    return said
