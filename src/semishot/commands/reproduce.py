"""`semishot demo` and `semishot reproduce ...`: parse, call one function, print."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro

from semishot.commands.flags import DataRoot, Flags, Json, Output, Tensorboard
from semishot.paper.requests import AblationRequest, MasksRequest, Table5Request, TableRequest
from semishot.training.requests import Where
from semishot.workers.requests import Workers


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
    from semishot.report import page, rendering, tables

    where, request = Where(runs, data_root, "cpu"), TableRequest(datasets.EMBEDDED, "demo", splits)
    records = reproduce.table("table1", request, where, tensorboard=tensorboard)
    table = published.table("table1", datasets.EMBEDDED)
    if as_json:
        print(tables.table_as_json(table, records))
    else:
        shown = [record for record in records if record["unlabeled"] == 5]
        print(rendering.as_text(tables.table_section("table1", table, shown)))
    page.report_on_runs(runs, data_root)


def table_command(name: str, title: str) -> Callable[..., None]:
    """The command for a table of `published.TABLES`, or for the figure over unlabeled images."""

    def command(
        request: Flags[TableRequest],
        where: Flags[Where],
        workers: Flags[Workers],
        output: Flags[Output],
        tensorboard: Tensorboard = False,
    ) -> None:
        from semishot.paper import published, reproduce
        from semishot.report import curves, page, rendering, tables
        from semishot.training.records import publish as publish_records

        dataset = request.dataset or published.dataset_of(name)
        table = published.table(name, dataset)
        records = reproduce.table(name, request, where, workers, tensorboard)
        if output.as_json:
            print(tables.table_as_json(table, records))
        elif name in published.TABLES:
            print(rendering.as_text(tables.table_section(name, table, records)))
        else:
            print(rendering.as_text(curves.curves_section(records)))
        if output.publish is not None:
            file = f"{name}-{request.preset}{_with_updates(request.updates)}.json"
            publish_records(records, output.publish / dataset / file)
        page.report_on_runs(where.runs, where.data_root)

    command.__doc__ = f"{title}: train and test what is missing; print it beside the paper's."
    return command


def table5(
    request: Flags[Table5Request],
    where: Flags[Where],
    output: Flags[Output],
) -> None:
    """1-NN and logistic regression on pixels and on Conv-4 features, beside the paper's Table 5."""
    from semishot.paper import table5
    from semishot.report import baseline_tables, page, rendering
    from semishot.training.records import publish as publish_records

    records = table5.table5(request, where)
    words = rendering.as_text(baseline_tables.table5_section(records))
    print(baseline_tables.table5_as_json(records) if output.as_json else words)
    if output.publish is not None:
        file = f"table5{_with_updates(request.updates)}.json"
        publish_records(records, output.publish / request.dataset / file)
    page.report_on_runs(where.runs, where.data_root)


def figure_masks(
    request: Flags[MasksRequest],
    where: Flags[Where],
    output: Flags[Output],
    out: Annotated[Path, tyro.conf.arg(help="The figure: .png, .pdf or .svg.")] = Path(
        "figure-masks.png"
    ),
) -> None:
    """Draw the mask values of distractors and others, and print how well they separate (Figure 7)."""
    from semishot.paper import masks
    from semishot.report import mask_tables, page, plots, rendering
    from semishot.training.records import publish as publish_records

    records = masks.figure_masks(request, where)
    plots.draw_masks(records, out)
    words = rendering.as_text(mask_tables.masks_section(records))
    print(json.dumps(records, indent=1) if output.as_json else words)
    for folder in (where.runs, output.publish):  # the report reads the first
        if folder is not None:
            publish_records(records, folder / records[0]["dataset"] / "figure-masks.json")
    page.report_on_runs(where.runs, where.data_root)


def ablations(
    request: Flags[AblationRequest],
    where: Flags[Where],
    workers: Flags[Workers],
    output: Flags[Output],
    tensorboard: Tensorboard = False,
) -> None:
    """Train and test what happens when one thing is changed at a time."""
    from semishot.paper import ablations
    from semishot.report import ablation_tables, page, rendering
    from semishot.training.records import publish as publish_records

    records = ablations.ablations(request, where, workers, tensorboard)
    words = rendering.as_text(ablation_tables.ablations_section(records))
    print(json.dumps(records, indent=1) if output.as_json else words)
    if output.publish is not None:
        file = f"ablations-{request.only.replace(' ', '-')}".rstrip("-") + ".json"
        publish_records(records, output.publish / request.dataset / file)
    page.report_on_runs(where.runs, where.data_root)


def _with_updates(updates: int | None) -> str:
    return "" if updates is None else f"-{updates}"
