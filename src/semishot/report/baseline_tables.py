"""The baselines of Table 5 (Appendix C): the paper's cells, and records beside them."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

from semishot.paper.published_baselines import CLASSIFIERS, FEATURES, published_cell
from semishot.report.tables import Measured, Record, as_markdown, as_text, cell

NOTE = (
    "Accuracy in %, mean over split seeds ± the 95 % interval over the 600 episodes of one of them; "
    "`over splits` is the standard error over the seeds. The paper does not say what its ± is. LR is "
    "200 steps of Adam without a penalty, as in the authors' code; LR, converged is scikit-learn's "
    "LogisticRegression()."
)
SCALE_BUG = (
    "Rows with the scale bug pre-train on pixels from 0 to 255 and test on 0 to 1. The authors' code "
    "does so on Omniglot and tieredImageNet, so the paper's `CNN pre` cells there belong to these rows."
)


def table5_cells(records: Sequence[Record]) -> dict[tuple[str, str, bool, int], Measured]:
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


def table5_rows(records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of Table 5 for one data set, beside the paper's where it has a cell."""
    dataset, cells = records[0]["dataset"], table5_cells(records)
    rows: dict[str, list[str]] = {}
    header = ["model", "splits"]
    for shot in sorted({shot for *_, shot in cells}):
        header += [f"{shot}-shot", "over splits", "paper", "difference"]
        for (classifier, features, bug, own), ours in cells.items():
            if own != shot:
                continue
            label = f"{CLASSIFIERS[classifier]} {FEATURES[features]}" + (", scale bug" * bug)
            theirs = published_cell(dataset, shot, classifier, features)
            rows.setdefault(label, [label, str(ours.splits)])
            rows[label] += [
                f"{ours.mean:.2f} ± {ours.interval:.2f}",
                f"± {ours.error:.2f}" if ours.splits > 1 else "-",
                f"{theirs.mean:.2f} ± {theirs.error:.2f}" if theirs else "-",
                f"{ours.mean - theirs.mean:+.2f}" if theirs else "-",
            ]
    return header, list(rows.values())


def table5_as_text(records: Sequence[Record]) -> str:
    title = f"Table 5, {records[0]['dataset']}, 5-way. {NOTE}"
    return f"{title}\n\n{as_text(*table5_rows(records))}"


def table5_as_json(records: Sequence[Record]) -> str:
    """The cells as plain data, beside the published ones."""
    dataset, cells = records[0]["dataset"], []
    for (classifier, features, bug, shot), ours in table5_cells(records).items():
        theirs = published_cell(dataset, shot, classifier, features)
        found: dict[str, Any] = {
            "model": classifier,
            "features": features,
            "scale_bug": bug,
            "shot": shot,
            "accuracy": ours.mean / 100,
            "standard_error_over_splits": ours.error / 100,
            "mean_ci95_over_episodes": ours.interval / 100,
            "splits": ours.splits,
        }
        if theirs:
            found |= {"paper_accuracy": theirs.mean / 100, "paper_ci95": theirs.error / 100}
        cells.append(found)
    return json.dumps(cells, indent=1)


def origin(records: Sequence[Record], command: str) -> str:
    """Every device and day the records come from."""
    devices = ", ".join(dict.fromkeys(r["device"] for r in records))
    days = ", ".join(dict.fromkeys(r["date"] for r in records))
    versions = ", ".join(f"{k} {v}" for k, v in records[0]["versions"].items())
    return f"{devices}; {versions}; {days}. Again: `{command}`.\n"


def table5_section(records: Sequence[Record]) -> str:
    """For docs/results.md."""
    dataset, bug = records[0]["dataset"], any(r["options"] for r in records)
    updates = max(r["updates"] for r in records)
    trained = f", pre-trained for {updates:,} updates" if updates else ""
    parts = [f"## Table 5 ({dataset}, 5-way){trained}\n", f"{NOTE}\n"]
    parts += [f"{SCALE_BUG}\n"] if bug else []
    again = origin(records, table5_command(records))
    return "\n".join([*parts, as_markdown(*table5_rows(records)) + "\n", again])


def table5_command(records: Sequence[Record]) -> str:
    which = f"--dataset {shlex.quote(records[0]['dataset'])}"
    bug = any(r["options"] for r in records)
    return f"semishot reproduce table5 {which}" + (" --with-scale-bug" * bug)
