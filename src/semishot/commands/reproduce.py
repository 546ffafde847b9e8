"""`semishot demo` and `semishot reproduce ...`: parse, call one function, print."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from semishot.commands.flags import Flags, Json, Output, Picture, Tensorboard, TrainingOutput
from semishot.commands.train import tell_of_changed
from semishot.paper.requests import AblationRequest, MasksRequest, Table5Request, TableRequest
from semishot.system.devices import DataRoot
from semishot.training.requests import Where
from semishot.workers import Workers

if TYPE_CHECKING:
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
    from semishot.report import paper_tables, render

    where, request = Where(runs, data_root, "cpu"), TableRequest(datasets.EMBEDDED, "demo", splits)
    records = reproduce.table("table1", request, where, tensorboard=tensorboard)
    table = published.table("table1", datasets.EMBEDDED)
    shown = [record for record in records if record["unlabeled"] == 5]
    text = render.as_text(paper_tables.table_section("table1", table, shown))
    hand_out(paper_tables.table_as_json(table, records) if as_json else text, records, where)


def table_command(name: str, title: str) -> Callable[..., None]:
    """The command for a table of `published.TABLES`, or for the figure over unlabeled images."""

    def command(
        request: Flags[TableRequest],
        where: Flags[Where],
        workers: Flags[Workers],
        output: Flags[TrainingOutput],
    ) -> None:
        from semishot.paper import published, reproduce
        from semishot.report import figures, paper_tables, render

        dataset = request.dataset or published.dataset_of(name)
        table = published.table(name, dataset)
        records = reproduce.table(name, request, where, workers, output.tensorboard)
        if output.as_json:
            text = paper_tables.table_as_json(table, records)
        elif name in published.TABLES:
            text = render.as_text(paper_tables.table_section(name, table, records))
        else:
            text = render.as_text(figures.curves_section(records))
        file = f"{dataset}/{name}-{request.preset}{_suffix(records, request.updates)}.json"
        hand_out(text, records, where, [output.publish], file)

    command.__doc__ = f"{title}: train and test what is missing; print it beside the paper's."
    return command


def table5(
    request: Flags[Table5Request],
    where: Flags[Where],
    output: Flags[Output],
) -> None:
    """1-NN and logistic regression on pixels and on Conv-4 features, beside the paper's Table 5."""
    from semishot.paper import table5
    from semishot.report import paper_tables, render

    records = table5.table5(request, where)
    words = render.as_text(paper_tables.table5_section(records))
    text = paper_tables.table5_as_json(records) if output.as_json else words
    file = f"{request.dataset}/table5{_suffix(records, request.updates)}.json"
    hand_out(text, records, where, [output.publish], file)


def figure_masks(
    request: Flags[MasksRequest],
    where: Flags[Where],
    output: Flags[Output],
    out: Picture = Path("figure-masks.svg"),
) -> None:
    """Draw the mask values of distractors and others, and print how well they separate (Figure 7)."""
    from semishot.paper import masks
    from semishot.report import figures, render

    records = masks.figure_masks(request, where)
    render.write_figure(figures.masks_charts(records), out)
    words = render.as_text(figures.masks_section(records))
    text = json.dumps(records, indent=1) if output.as_json else words
    folders = [where.runs, output.publish]  # the report reads the first
    updates = None if request.model else request.updates
    file = f"{records[0]['dataset']}/figure-masks{_suffix(records, updates)}.json"
    hand_out(text, records, where, folders, file)


def ablations(
    request: Flags[AblationRequest],
    where: Flags[Where],
    workers: Flags[Workers],
    output: Flags[TrainingOutput],
) -> None:
    """Train and test what happens when one thing is changed at a time."""
    from semishot.paper import ablations
    from semishot.report import other_tables, render

    records = ablations.ablations(request, where, workers, output.tensorboard)
    words = render.as_text(other_tables.ablations_section(records))
    text = json.dumps(records, indent=1) if output.as_json else words
    file = f"{request.dataset}/ablations{_words(request.only)}{_suffix(records)}.json"
    hand_out(text, records, where, [output.publish], file)


def hand_out(
    text: str,
    records: "Sequence[Record]",
    where: Where,
    folders: Iterable[Path | None] = (),
    file: str = "",
) -> None:
    """Print the text, add the records to `file` in each folder, and write the report of all runs."""
    from semishot.report.page import report_on_runs
    from semishot.training.records import publish

    tell_of_changed((r["model"], r["training"]["date"]) for r in records if "training" in r)
    print(text)
    for folder in folders:
        if folder is not None:
            publish(records, folder / file)
    report_on_runs(where.runs, where.data_root)


def _words(text: str) -> str:
    """The words of a text as they stand in a result file's name: `-authors-code`, without quotes or signs."""
    return "".join(f"-{word}" for word in re.findall(r"\w+", text.replace("'", "")))


def _suffix(records: "Sequence[Record]", updates: int | None = None) -> str:
    """The end of a result file's name: another number of updates, another preparation of the images."""
    parts = ("" if updates is None else str(updates), records[0].get("preparation", ""))
    return "".join(f"-{part}" for part in parts if part)
