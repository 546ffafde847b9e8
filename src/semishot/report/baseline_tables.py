"""Table 5 (Appendix C): records of the baselines -> a section beside the paper's, or cells as JSON."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

from semishot.paper.published_baselines import CLASSIFIERS, FEATURES, published_cell
from semishot.paper.requests import Table5Request
from semishot.report.image_preparations import (
    about_images,
    data_root_flag,
    prepare_command_of,
    prepared_as,
)
from semishot.report.provenance import provenance, split_seeds
from semishot.report.section import Cell, Grid, Number, Section
from semishot.report.tables import Measured, beside, cell
from semishot.training.records import BaselineRecord

USUAL_UPDATES = 4_000
"""Of the pre-training."""
NOTE = (
    "Accuracy in %, mean over splits ± half the 95 % interval over the 600 episodes of a split, on average; "
    "`over splits` is the standard error over splits (ddof = 1). The paper does not say what its ± is. On "
    "Omniglot ours is 1.7 to 2.1 times as large, as it would be if theirs were the standard error over the "
    "episodes of one run. So z is the difference over that and our error over splits. LR is 200 steps of "
    "Adam without a penalty, as in the authors' code; LR, converged is scikit-learn's LogisticRegression()."
)
SCALE_BUG = (
    "Rows with the scale bug pre-train on pixels from 0 to 255 and test on 0 to 1. The authors' code "
    "does so on Omniglot and tieredImageNet, so the paper's `CNN pre` cells there belong to these rows."
)
AUTHORS_RANDOM = (
    "`CNN rnd, the authors'` is the one random network that the authors' code draws in every run, weight for "
    "weight; `CNN rnd` has another one in each split. The paper's cells belong to the former."
)


def table5_section(records: Sequence[BaselineRecord]) -> Section:
    dataset, updates = records[0]["dataset"], max(r["updates"] for r in records)
    about = [NOTE]
    if any(r["features"] == "authors_random" for r in records):
        about.append(AUTHORS_RANDOM)
    if any(r["options"] for r in records):
        about.append(SCALE_BUG)
    return Section(
        f"Table 5 ({dataset}, 5-way){prepared_as(records)}",
        [table5_grid(records)],
        provenance(records),
        [("all of it", table5_command(records))],
        prepare_command_of(records),
        detail=f", pre-trained for {updates:,} updates" if updates else "",
        images=about_images(records),
        about=about,
    )


def table5_command(records: Sequence[BaselineRecord]) -> str:
    """The command that measures these records, with what is not its default."""
    usual, words = Table5Request(), ["--dataset", records[0]["dataset"]]
    seen = {r["features"] for r in records}
    if seen != set(usual.features):
        words += ["--features", *(features for features in FEATURES if features in seen)]
    if any(r["options"] for r in records):
        words.append("--with-scale-bug")
    if (splits := len(split_seeds(records))) != usual.splits:
        words += ["--splits", str(splits)]
    if (updates := max(r["updates"] for r in records)) not in (0, USUAL_UPDATES):
        words += ["--updates", str(updates)]
    return f"semishot reproduce table5 {shlex.join(words)}" + data_root_flag(records)


def table5_grid(records: Sequence[BaselineRecord]) -> Grid:
    """One data set, beside the paper's numbers where it has a cell."""
    dataset, cells = records[0]["dataset"], table5_cells(records)
    shots = sorted({shot for *_, shot in cells})
    header = ["model", "splits"]
    for shot in shots:
        header += [f"{shot}-shot", "over splits", "paper", "difference"]
    rows = []
    for classifier, features, bug in dict.fromkeys(place[:3] for place in cells):
        own = {shot: cells.get((classifier, features, bug, shot)) for shot in shots}
        label = f"{CLASSIFIERS[classifier]} {FEATURES[features]}" + (", scale bug" * bug)
        row: list[Cell] = [label, max(ours.splits for ours in own.values() if ours)]
        for shot, ours in own.items():
            theirs = published_cell(dataset, shot, classifier, features)
            over_splits = Number(ours.error, form="error") if ours and ours.splits > 1 else None
            row += [Number(ours.mean, ours.interval) if ours else None, over_splits]
            row += beside(ours, theirs, theirs.error if theirs else 0.0)
        rows.append(row)
    heading = f"Table 5, {dataset}, 5-way. {NOTE}"
    return Grid(f"Baselines on {dataset}", header, rows, heading)


def table5_cells(
    records: Sequence[BaselineRecord],
) -> dict[tuple[str, str, bool, int], Measured]:
    """By classifier, features, scale bug and shot, in the order of the table."""
    found = {}
    for classifier in CLASSIFIERS:
        for features, bug in [*((f, False) for f in FEATURES), ("pretrained", True)]:
            for shot in sorted({r["shot"] for r in records}):
                measured = cell(
                    r
                    for r in records
                    if (r["model"], r["features"], r["shot"]) == (classifier, features, shot)
                    and r["options"].get("scale_bug", False) == bug
                )
                if measured:
                    found[classifier, features, bug, shot] = measured
    return found


def table5_as_json(records: Sequence[BaselineRecord]) -> str:
    """The cells as plain data, beside the published ones."""
    dataset, cells = records[0]["dataset"], []
    for (classifier, features, bug, shot), ours in table5_cells(records).items():
        where = {"model": classifier, "features": features, "scale_bug": bug, "shot": shot}
        found: dict[str, Any] = {**where, **ours.as_json()}
        if theirs := published_cell(dataset, shot, classifier, features):
            found |= {"paper_accuracy": theirs.mean / 100, "paper_error": theirs.error / 100}
        cells.append(found)
    return json.dumps(cells, indent=1)
