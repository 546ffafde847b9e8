"""`semishot demo` and `semishot reproduce ...`: parse, call one function, print."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from semishot.commands.flags import Flags, Json, Output, Picture, Tensorboard, TrainingOutput
from semishot.commands.train import tell_of_changed
from semishot.paper.requests import AblationRequest, MasksRequest, Table5Request, TableRequest
from semishot.system.devices import DataRoot
from semishot.training.requests import Where
from semishot.workers import Workers

if TYPE_CHECKING:
    from semishot.report.tables import Section
    from semishot.training.records import Record


def demo(
    splits: int = 3,
    runs: Path = Path("runs"),
    data_root: DataRoot = None,
    tensorboard: Tensorboard = False,
    as_json: Json = False,
) -> None:
    """Train and test the paper's five models on generated glyphs, in minutes on a laptop.

    Args:
        splits: Labeled/unlabeled splits, trained side by side; the ± is their standard error.
        runs: Where runs are kept, resumed and found again.
    """
    from semishot import datasets
    from semishot.paper import published, reproduce
    from semishot.report import paper_tables

    where, request = Where(runs, data_root, "cpu"), TableRequest(datasets.EMBEDDED, "demo", splits)
    records = reproduce.table("table1", request, where, tensorboard=tensorboard)
    table = published.table("table1", datasets.EMBEDDED)
    shown = [record for record in records if record["unlabeled"] == 5]
    section = paper_tables.table_section(table, shown)
    hand_out(section, records, where, Output(None, as_json))


def table_command(name: str, title: str) -> Callable[..., None]:
    """The command for a table of `published.TABLES`, or for the figure over unlabeled images."""

    def command(
        request: Flags[TableRequest],
        where: Flags[Where],
        workers: Flags[Workers],
        output: Flags[TrainingOutput],
    ) -> None:
        from semishot.paper import published, reproduce
        from semishot.report import paper_tables

        dataset = request.dataset or published.dataset_of(name)
        table = published.table(name, dataset)
        records = reproduce.table(name, request, where, workers, output.tensorboard)
        if name in published.TABLES:
            section = paper_tables.table_section(table, records)
        else:
            section = paper_tables.curves_section(records)
        file = f"{dataset}/{name}-{request.preset}{_suffix(records, request.updates)}.json"
        hand_out(section, records, where, output, file)

    command.__doc__ = f"{title}: train and test what is missing; print it beside the paper's."
    return command


def table5(request: Flags[Table5Request], where: Flags[Where], output: Flags[Output]) -> None:
    """1-NN and logistic regression on pixels and on Conv-4 features, beside the paper's Table 5."""
    from semishot.paper import table5
    from semishot.report import paper_tables

    records = table5.table5(request, where)
    file = f"{request.dataset}/table5{_suffix(records, request.updates)}.json"
    hand_out(paper_tables.table5_section(records), records, where, output, file)


def figure_masks(
    request: Flags[MasksRequest],
    where: Flags[Where],
    output: Flags[Output],
    out: Picture = Path("figure-masks.svg"),
) -> None:
    """Draw the mask values of distractors and others, and print how well they separate (Figure 7)."""
    from semishot.paper import masks
    from semishot.report import mask_values, render
    from semishot.training.records import publish

    records = masks.figure_masks(request, where)
    render.write_figure(mask_values.masks_charts(records), out)
    updates = None if request.model else request.updates
    file = f"{records[0]['dataset']}/figure-masks{_suffix(records, updates)}.json"
    publish(records, where.runs / file)  # the report reads it
    hand_out(mask_values.masks_section(records), records, where, output, file)


def ablations(
    request: Flags[AblationRequest],
    where: Flags[Where],
    workers: Flags[Workers],
    output: Flags[TrainingOutput],
) -> None:
    """Train and test what happens when one thing is changed at a time."""
    from semishot.paper import ablations
    from semishot.report import paper_tables

    records = ablations.ablations(request, where, workers, output.tensorboard)
    only = "".join(f"-{word}" for word in re.findall(r"\w+", request.only.replace("'", "")))
    file = f"{request.dataset}/ablations{only}{_suffix(records)}.json"
    hand_out(paper_tables.ablations_section(records), records, where, output, file)


def hand_out(
    section: "Section", records: "Sequence[Record]", where: Where, output: Output, file: str = ""
) -> None:
    """Print the section or its records, publish these in `file`, and write the report of all runs."""
    from semishot.report.page import report_on_runs
    from semishot.report.render import as_text
    from semishot.training.records import publish

    tell_of_changed((r["model"], r["training"]["date"]) for r in records if "training" in r)
    print(json.dumps(records, indent=1) if output.as_json else as_text(section))
    if output.publish is not None:
        publish(records, output.publish / file)
    report_on_runs(where.runs, where.data_root)


def _suffix(records: "Sequence[Record]", updates: int | None = None) -> str:
    """The end of a result file's name: another number of updates, another preparation of the images."""
    parts = ("" if updates is None else str(updates), records[0].get("preparation", ""))
    return "".join(f"-{part}" for part in parts if part)
