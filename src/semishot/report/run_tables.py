"""What `semishot evaluate` and `semishot pick` print: a line per run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from semishot.errors import counted
from semishot.paper.published import title
from semishot.report.render import grid_as_text
from semishot.report.tables import Grid, GridCell, Number, measured
from semishot.training.records import Record

if TYPE_CHECKING:  # it imports torch
    from semishot.training.evaluation import Picked


def records_as_text(records: Sequence[Record]) -> str:
    """One line per run, then the mean of each method with its options; both kinds of ± are named."""
    methods: dict[str, list[Record]] = {}
    rows: list[list[GridCell]] = []
    for r in records:
        method = ", ".join([r["model"], *(f"{k} {v}" for k, v in r["options"].items())])
        methods.setdefault(method, []).append(r)
        interval = Number(100 * r["accuracy_ci95"]) if r["episodes"] > 1 else None
        rows.append([method, r["split_seed"], Number(100 * r["accuracy"]), interval])
    header = ["model", "split seed", "accuracy %", "± 95 % over episodes"]
    lines = [grid_as_text(Grid("", header, rows))]
    for method, own in methods.items():
        mean = measured(own)
        if mean and mean.splits > 1:
            error = f"{mean.error:.2f} (standard error over {mean.splits} splits)"
            lines.append(f"{method}: mean {mean.mean:.2f} ± {error}")
    return "\n".join(lines)


def picked_as_text(picked: "Picked") -> str:
    """All runs on the validation classes, the best on the test classes, and how sure the choice is."""
    record, episodes = picked.record, counted(picked.record["episodes"], "episode")
    header = ["method", "split seed", "validation accuracy %"]
    rows: list[list[GridCell]] = [
        [title(c.model), c.split_seed, Number(100 * c.accuracy, 100 * c.accuracy_ci95)]
        for c in picked.candidates
    ]
    accuracy = f"{100 * record['accuracy']:.2f} ± {100 * record['accuracy_ci95']:.2f} %"
    text = grid_as_text(Grid("", header, rows)) + (
        f"\nSaved: {title(record['model'])} of split seed {record['split_seed']}. On the test classes: "
        f"{accuracy}. ± is the 95 % interval over {episodes}."
    )
    if picked.lead is None:
        return text
    difference, error = 100 * picked.lead.difference, 100 * picked.lead.ci95
    sure = "more than" if difference > error else "no more than"
    above = f"{difference:.2f} ± {error:.2f} points above the next: {sure} chance."
    return f"{text}\nOn the validation classes it is {above}"
