"""The command `semishot`: parse, call one library function, print. `--help` imports no torch."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from semishot import __version__
from semishot.commands.appendix import REPRODUCE_COMMANDS, SHOW_COMMANDS
from semishot.commands.exit_codes import told
from semishot.commands.sort import OWN_IMAGE_COMMANDS
from semishot.data.episodes import EpisodeShape
from semishot.errors import InputError
from semishot.paper.requests import AblationRequest, TableRequest
from semishot.system.memory import keep_freed_memory
from semishot.training.requests import EvaluationRequest, FleetRequest, PickRequest, Where
from semishot.workers.requests import Workers

RUNS = Path("runs")
Json = Annotated[bool, tyro.conf.arg(name="json")]
TABLE1_TEST_SHAPE = EpisodeShape(query=14)
PICK_SHAPE = EpisodeShape(query=14, distractors=5)


def demo(
    splits: int = 3,
    runs: Path = RUNS,
    data_root: Path | None = None,
    tensorboard: bool = False,
    as_json: Json = False,
) -> None:
    """Train and test the paper's five models on generated glyphs, in minutes on a laptop.

    Args:
        splits: Labeled/unlabeled splits, trained side by side; the ± is their standard error.
        runs: Where runs are kept, resumed and found again.
        data_root: Where prepared data are; else $SEMISHOT_DATA, else the cache folder.
        tensorboard: Leave event files in the run folders too, for TensorBoard.
        as_json: Print the cells as JSON.
    """
    from semishot import datasets
    from semishot.paper import published, reproduce
    from semishot.report import page, rendering, tables

    request = TableRequest(datasets.EMBEDDED, "demo", splits)
    where = Where(runs, data_root, "cpu")
    records = reproduce.table("table1", request, where, tensorboard=tensorboard)
    table = published.table("table1", datasets.EMBEDDED)
    if as_json:
        print(tables.table_as_json(table, records))
    else:
        some = [r for r in records if r["unlabeled"] == 5]
        print(rendering.as_text(tables.table_section("table1", table, some)))
    page.report_on_runs(runs, data_root)


def reproduce(
    what: tyro.conf.Positional[
        Literal[
            "table1",
            "table2",
            "table3",
            "table5",
            "figure-unlabeled",
            "figure-masks",
            "ablations",
        ]
    ],
    dataset: str | None = None,
    preset: str = "ren2018",
    splits: int = 10,
    shots: tuple[int, ...] = (),
    models: tuple[str, ...] = (),
    updates: int | None = None,
    only: str = "",
    finished: bool = False,
    runs: Path = RUNS,
    publish: Path | None = None,
    data_root: Path | None = None,
    device: str = "auto",
    engine: Literal["local", "ray"] | None = None,
    address: str | None = None,
    fleet_size: int | None = None,
    tensorboard: bool = False,
    as_json: Json = False,
) -> None:
    """Train and test whatever a table or figure still lacks; print it beside the paper's.

    Args:
        what: A table or figure of the paper, or what happens when one thing is changed at a time.
        dataset: A prepared data set, instead of the table's; `semishot data list` shows them.
        preset: ren2018 reproduces the paper, ren2018-text follows the schedule in its text, semishot
            goes beyond it.
        splits: Labeled/unlabeled splits (seeds 0, 1, ...); the ± is their standard error.
        shots: Only these columns, as in `--shots 1`.
        models: Only these rows, as in `--models supervised masked_soft_kmeans`.
        updates: Training updates instead of the preset's; the schedule is stretched with them.
        only: Only the ablations whose names contain this.
        finished: Train nothing: show what earlier runs have finished.
        runs: Where runs are kept, resumed and found again.
        publish: Add the records to the result files in this folder, for `semishot results`.
        data_root: Where prepared data are; else $SEMISHOT_DATA, else the cache folder.
        device: auto, cpu, cuda or cuda:N.
        engine: local trains on every GPU of this machine, or on its cores, a process each; ray on the
            machines of a cluster. Without it, this process, or local where there are several GPUs.
        address: The Ray cluster's, such as 10.0.0.1:6379; else $RAY_ADDRESS, else a new one here.
        fleet_size: Train at most so many runs as one fleet, instead of as many as can share one: more
            and smaller pieces of work, for many devices.
        tensorboard: Leave event files in the run folders too, for TensorBoard.
        as_json: Print the cells as JSON.
    """
    from semishot.paper import ablations, published, reproduce
    from semishot.report import curves, page, rendering, tables
    from semishot.report.ablation_tables import ablations_section
    from semishot.training.records import Record
    from semishot.training.records import publish as publish_records

    if what in REPRODUCE_COMMANDS:
        raise InputError(
            f"{what} has arguments of its own: they follow `semishot reproduce {what}`"
        )
    own = (preset, updates, shots, models, finished, fleet_size)
    if what == "ablations" and own != ("ren2018", None, (), (), False, None):
        raise InputError(
            "ablations have their own presets and rows; only --only chooses among them"
        )
    if only and what != "ablations":
        raise InputError(f"--only chooses ablations; {what} has none")
    dataset = dataset or published.dataset_of(what)
    where, workers = Where(runs, data_root, device), Workers(engine, address)
    if what == "ablations":
        request = AblationRequest(dataset, splits, only)
        changed = ablations.ablations(request, where, workers, tensorboard)
        words = rendering.as_text(ablations_section(changed))
        print(json.dumps(changed, indent=1) if as_json else words)
        records: list[Record] = [*changed]
    else:
        table = published.table(what, dataset)
        wanted = TableRequest(dataset, preset, splits, shots, models, updates, finished, fleet_size)
        records = reproduce.table(what, wanted, where, workers, tensorboard)
        if as_json:
            print(tables.table_as_json(table, records))
        elif what in published.TABLES:
            print(rendering.as_text(tables.table_section(what, table, records)))
        else:
            print(rendering.as_text(curves.curves_section(records)))
    if publish is not None:
        kind = only.replace(" ", "-") if what == "ablations" else preset
        name = f"{what}-{kind}".rstrip("-")
        suffix = "" if updates is None else f"-{updates}"
        publish_records(records, publish / dataset / f"{name}{suffix}.json")
    page.report_on_runs(runs, data_root)


def show() -> None:  # stands in `semishot --help`; main() goes straight to SHOW_COMMANDS
    """Draw an episode or a refinement: `semishot show --help`."""


def results(folder: Path = Path("results"), out: Path = Path("docs/results.md")) -> None:
    """Write the results page and its figures from published result files.

    Args:
        folder: Where `reproduce --publish` has put them.
        out: The page.
    """
    from semishot.report import results

    results.write_results(folder, out)
    print(out)


def report(
    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RESULTS")],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
    episodes: int = 2,
    data_root: Path | None = None,
) -> None:
    """Write one self-contained HTML page from result files: tables, charts, episodes, settings.

    Args:
        source: A folder of published results or of runs, or one result file.
        out: The page.
        episodes: Test episodes to show of each trained model whose data are prepared.
        data_root: Where prepared data are; else $SEMISHOT_DATA, else the cache folder.
    """
    from semishot.report.page import write_report

    write_report(source, out, data_root, episodes)
    print(out)


def train(
    dataset: str = "glyphs",
    model: str = "masked_soft_kmeans",
    preset: str = "ren2018",
    split_seeds: tuple[int, ...] = (0,),
    way: int | None = None,
    shot: int | None = None,
    query: int | None = None,
    unlabeled: int | None = None,
    distractors: int | None = None,
    within_group: bool = False,
    updates: int | None = None,
    filters: int | None = None,
    labeled_fraction: float | None = None,
    options: dict[str, str] | None = None,
    out: Path | None = None,
    runs: Path = RUNS,
    data_root: Path | None = None,
    device: str = "auto",
    tensorboard: bool = False,
) -> None:
    """Train a fleet: one method, one run per split seed, side by side. Prints the run folder.

    Args:
        dataset: A prepared data set; `semishot data list` shows them.
        model: supervised, soft_kmeans, distractor_cluster or masked_soft_kmeans.
        preset: Where updates, schedule and encoder come from.
        split_seeds: One run per seed: it sets the labeled split, the weights and the episodes.
        way: Classes in a training episode, instead of the preset's.
        shot: Labeled support images per class, likewise.
        query: Query images per class, likewise.
        unlabeled: Unlabeled images per class, likewise.
        distractors: Further classes that give only unlabeled images, likewise.
        within_group: Draw all classes of an episode from one group: an alphabet, a category.
        updates: Instead of the preset's; the schedule is stretched with them.
        filters: Encoder width instead of the preset's.
        labeled_fraction: Share of each class's images that is labeled, instead of the preset's.
        options: Options of the method, as NAME VALUE pairs: `--options mask_power 2`.
        out: The run folder; by default a folder below --runs named after the settings.
        runs: Where runs are kept.
        data_root: Where prepared data are; else $SEMISHOT_DATA, else the cache folder.
        device: auto, cpu, cuda or cuda:N.
        tensorboard: Leave event files in the run folders too, for TensorBoard.
    """
    from semishot.paper import reproduce

    request = FleetRequest(
        dataset, model, preset, split_seeds, way, shot, query, unlabeled, distractors, within_group,
        updates, filters, labeled_fraction, options,
    )  # fmt: skip
    print(reproduce.train_fleet(request, Where(runs, data_root, device), out, tensorboard))


def evaluate(
    model: str,
    refiner: str | None = None,
    split: Literal["train", "val", "test"] = "test",
    shape: Annotated[EpisodeShape, tyro.conf.arg(name="")] = TABLE1_TEST_SHAPE,
    episodes: int = 600,
    data_root: Path | None = None,
    device: str = "auto",
    as_json: Json = False,
) -> None:
    """Test a trained run folder on episodes of any shape.

    Args:
        model: A folder left by `semishot train` or `reproduce`, or pretrained:omniglot.
        refiner: Refine with this method at test instead of the trained one, or with `none`.
        split: Classes to test on.
        shape: The test episode.
        episodes: How many.
        data_root: Where prepared data are; else $SEMISHOT_DATA, else the cache folder.
        device: auto, cpu, cuda or cuda:N.
        as_json: Print one record per run.
    """
    from semishot.report import tables
    from semishot.training import evaluation

    request = EvaluationRequest(model, refiner, split, shape, episodes)
    records = evaluation.evaluate_folder(request, Where(data_root=data_root, device=device))
    print(json.dumps(records, indent=1) if as_json else tables.records_as_text(records))


def pick(
    run: tyro.conf.Positional[Path],
    out: tyro.conf.Positional[Path],
    model: str = "masked_soft_kmeans",
    shape: Annotated[EpisodeShape, tyro.conf.arg(name="")] = PICK_SHAPE,
    data_root: Path | None = None,
    device: str = "auto",
) -> None:
    """Save the run of a fleet that is best on the validation classes as one small file.

    Args:
        run: A folder left by `semishot train` or `reproduce`.
        out: The file to write, NAME.safetensors.
        model: Which of the fleet's methods.
        shape: The episode to judge by.
        data_root: Where prepared data are; else $SEMISHOT_DATA, else the cache folder.
        device: auto, cpu, cuda or cuda:N.
    """
    from semishot.training import evaluation

    where = Where(data_root=data_root, device=device)
    print(json.dumps(evaluation.pick_best(run, out, PickRequest(model, shape), where), indent=1))


def data() -> None:  # stands in `semishot --help`; main() goes straight to DATA_COMMANDS
    """Prepare, verify and list data sets: `semishot data --help`."""


def data_prepare(
    name: tyro.conf.Positional[str],
    source: Path | None = None,
    download: bool = False,
    splits: str | None = None,
    partial: bool = False,
    data_root: Path | None = None,
) -> None:
    """Turn raw files into an image pool below the data root.

    Args:
        name: Which data set; `semishot data list` shows them.
        source: The folder that holds its published files.
        download: Fetch the published files, checked by their checksums. The only use of the network.
        splits: Only these splits, as in `train,test`, where a data set may be held in part.
        partial: Go without the classes that the source lacks, where a data set may be held in part.
        data_root: Where prepared data go; else $SEMISHOT_DATA, else the cache folder.
    """
    from semishot import datasets

    taken = splits.split(",") if splits else None
    datasets.prepare(name, source, data_root, download=download, splits=taken, partial=partial)
    data_verify(name, data_root)


def data_verify(name: tyro.conf.Positional[str], data_root: Path | None = None) -> None:
    """Recompute a pool's fingerprint and say what it holds, what is missing and what differs.

    Args:
        name: Which data set.
        data_root: Where prepared data are; else $SEMISHOT_DATA, else the cache folder.
    """
    from semishot import datasets

    print("\n".join(datasets.verify(name, data_root)))


def data_list(data_root: Path | None = None, as_json: Json = False) -> None:
    """List the data sets this version knows and which are prepared.

    Args:
        data_root: Where prepared data are; else $SEMISHOT_DATA, else the cache folder.
        as_json: Print as JSON.
    """
    from semishot import datasets

    found = datasets.prepared(data_root)
    print(
        json.dumps(found, indent=1) if as_json else "\n".join(f"{k}: {v}" for k, v in found.items())
    )


def doctor(data_root: Path | None = None, as_json: Json = False) -> None:
    """Versions, devices and data: what a bug report needs.

    Args:
        data_root: Where prepared data are; else $SEMISHOT_DATA, else the cache folder.
        as_json: Print as JSON.
    """
    from semishot.commands import doctor

    found = doctor.examine(data_root)
    print(
        json.dumps(found, indent=1) if as_json else "\n".join(f"{k}: {v}" for k, v in found.items())
    )


COMMANDS: dict[str, Callable[..., Any]] = {
    "demo": demo,
    **OWN_IMAGE_COMMANDS,
    "reproduce": reproduce,
    "train": train,
    "evaluate": evaluate,
    "pick": pick,
    "results": results,
    "report": report,
    "show": show,
    "data": data,
    "doctor": doctor,
}
DATA_COMMANDS: dict[str, Callable[..., Any]] = {
    "prepare": data_prepare,
    "verify": data_verify,
    "list": data_list,
}

GROUPS = {"data": DATA_COMMANDS, "show": SHOW_COMMANDS}


def main(arguments: list[str] | None = None) -> None:
    """Run one command. Whatever ends it early is one line and an exit code: see `endings.py`."""
    args = sys.argv[1:] if arguments is None else arguments
    if args == ["--version"]:
        print(__version__)
        return
    prog, commands = "semishot", COMMANDS
    if args and args[0] in GROUPS:
        prog, commands, args = f"semishot {args[0]}", GROUPS[args[0]], args[1:]
    elif args[:1] == ["reproduce"] and args[1:2] and args[1] in REPRODUCE_COMMANDS:
        prog, commands, args = "semishot reproduce", REPRODUCE_COMMANDS, args[1:]
    keep_freed_memory()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that it cannot show is no reason to end
            stream.reconfigure(errors="backslashreplace")
    with told():
        tyro.extras.subcommand_cli_from_dict(
            commands,
            prog=prog,
            args=args,
            description="Few-shot classification with unlabeled data (Ren et al., ICLR 2018).",
            config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
        )
