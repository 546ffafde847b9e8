"""The run that `semishot pick` has saved, beside those it was chosen from."""

from typing import TYPE_CHECKING

from semishot.errors import counted
from semishot.paper.published import title
from semishot.report.rendering import grid_as_text
from semishot.report.section import Cell, Grid, Number

if TYPE_CHECKING:  # it imports torch
    from semishot.training.pick import Picked


def picked_as_text(picked: "Picked") -> str:
    """All runs on the validation classes, the best on the test classes, and how sure the choice is."""
    record, episodes = picked.record, counted(picked.record["episodes"], "episode")
    header = ["method", "split seed", "validation accuracy %"]
    rows: list[list[Cell]] = [
        [title(c.model), c.split_seed, Number(100 * c.accuracy, 100 * c.accuracy_ci95)]
        for c in picked.candidates
    ]
    accuracy = f"{100 * record['accuracy']:.2f} ± {100 * record['accuracy_ci95']:.2f} %"
    lines = [
        grid_as_text(Grid("", header, rows)),
        f"Saved: {title(record['model'])} of split seed {record['split_seed']}. On the test classes: "
        f"{accuracy}. ± is the 95 % interval over {episodes}.",
    ]
    if picked.lead is not None:
        difference, error = 100 * picked.lead.difference, 100 * picked.lead.ci95
        sure = "more than" if difference > error else "no more than"
        lines.append(
            f"On the validation classes it is {difference:.2f} ± {error:.2f} points above the next: {sure} "
            "chance."
        )
    return "\n".join(lines)
