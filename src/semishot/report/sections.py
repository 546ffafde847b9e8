"""Records -> the sections of a report: tables beside the paper's, charts, settings, commands."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from semishot.errors import InputError
from semishot.paper import presets, published
from semishot.report import baseline_tables, mask_tables, results, tables
from semishot.report.charts import Chart, mask_chart, unlabeled_charts
from semishot.report.grids import Grid, grid
from semishot.report.measured import Group, other_rows, sort_out
from semishot.report.reading import Results
from semishot.report.tables import Record
from semishot.training.config import Recipe


@dataclass(frozen=True)
class Section:
    title: str
    about: list[str]
    grids: list[Grid]
    charts: list[Chart] = field(default_factory=list)
    settings: list[tuple[str, str]] = field(default_factory=list)
    commands: list[tuple[str, str]] = field(default_factory=list)
    """What to run again, and how."""
    summary: list[str] = field(default_factory=list)
    """A row of the overview, where the paper has this table."""


def make_sections(found: Results) -> list[Section]:
    """The paper's tables and figures, then what was changed, then whatever else was measured."""
    sorted_out = sort_out(found.files)
    made = [table_section(group) for group in sorted_out.tables]
    made += [figure_section(group) for group in sorted_out.figures]
    for make, files in (
        (table5_section, sorted_out.baselines),
        (masks_section, sorted_out.masks),
        (ablations_section, sorted_out.ablations),
    ):
        for name, records in files.items():
            try:
                made.append(make(name, records))
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise InputError(f"{name} is no result file of this version: {error!r}") from error
    for choice in found.choices:
        try:
            made.append(choice_section(choice))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"choice.json is no record of a choice: {error!r}") from error
    if sorted_out.others:
        made.append(others_section(sorted_out.others))
    return made


def table_section(group: Group) -> Section:
    name, table, records = group.name, group.table, group.records
    dataset, preset, updates = (records[0][k] for k in ("dataset", "preset", "updates"))
    beside_paper = dataset == table.dataset
    title = table.title if beside_paper else "The five models"
    aim = presets.preset(preset, dataset).about
    about, grids, summary = [f"{aim[0].upper()}{aim[1:]}."], [], []
    for shot, m in tables.parts_of(table, records):
        measured = tables.cells(records, shot, m)
        splits = max(ours.splits for ours in measured.values() if ours)
        caption = f"{shot}-shot, M = {m} unlabeled images per class at test, {splits} splits"
        grids.append(grid(caption, *tables.table_rows(table, records, shot, m, beside_paper)))
    if beside_paper:
        best = results.best_differences(table, records)
        about.append(results.verdict(table, best))
        summary = [f"{title}, {dataset}", preset, f"{updates:,}"]
        summary += [f"{len(best)} (of {len(table.cells)})", str(sum(g >= 0 for g in best.values()))]
        summary.append(f"{min(best.values()):+.2f}")
    else:
        about += tables.findings(records, *tables.parts_of(table, records)[0])
    return Section(
        f"{title} ({dataset}, 5-way), preset `{preset}`, {updates:,} updates",
        about,
        grids,
        settings=settings(records),
        commands=cell_commands(name, table, records),
        summary=summary,
    )


def cell_commands(
    name: str, table: published.Table, records: list[Record]
) -> list[tuple[str, str]]:
    """The whole, then each cell: a row at one shot, in both columns."""
    commands = [("all of it", results.rerun(name, table, records))]
    for shot in sorted({r["shot"] for r in records}):
        for model, label in published.MODELS.items():
            own = [r for r in records if (r["model"], r["shot"]) == (model, shot)]
            if own:
                commands.append((f"{label}, {shot}-shot", results.rerun(name, table, own)))
    return commands


def figure_section(group: Group) -> Section:
    table, records = group.table, group.records
    dataset, preset, updates = (records[0][k] for k in ("dataset", "preset", "updates"))
    shots = sorted({r["shot"] for r in records})
    return Section(
        f"{table.title}: {dataset}, preset `{preset}`, {updates:,} updates",
        ["Mean and standard error over splits."],
        [grid(f"{shot}-shot", *tables.curve_rows(table, records, shot)) for shot in shots],
        unlabeled_charts(table, records),
        settings(records),
        cell_commands(group.name, table, records),
    )


def table5_section(name: str, records: list[Record]) -> Section:
    about = [baseline_tables.NOTE]
    about += [baseline_tables.SCALE_BUG] if any(r["options"] for r in records) else []
    dataset = records[0]["dataset"]
    return Section(
        f"Table 5 ({dataset}, 5-way)",
        about,
        [grid(f"Baselines on {dataset}", *baseline_tables.table5_rows(records))],
        settings=settings(records),
        commands=[("all of it", baseline_tables.table5_command(records))],
    )


def masks_section(name: str, records: list[Record]) -> Section:
    return Section(
        f"Figure 7 ({records[0]['dataset']}): mask values, and what tells distractors",
        [mask_tables.mask_findings(records), mask_tables.MASK_NOTE],
        [grid("What tells distractors", *mask_tables.mask_rows(records))],
        [mask_chart(records)],
        settings(records),
        [("all of it", mask_tables.masks_command(records))],
    )


def ablations_section(name: str, records: list[Record]) -> Section:
    only = name.rpartition("/")[2].removesuffix(".json").partition("-")[2]
    return Section(
        f"What made the numbers ({records[0]['dataset']})" + (f": {only}" if only else ""),
        [results.ablations_note(records)],
        [grid("One change at a time", *results.ablation_rows(records))],
        settings=settings(records),
        commands=[("all of it", results.ablations_command(records, only))],
    )


def choice_section(choice: dict[str, Any]) -> Section:
    return Section(
        str(choice["title"]),
        [str(choice["about"])],
        [grid("On validation classes", *results.choice_rows(choice))],
        settings=[(key, str(choice[key])) for key in ("device", "versions", "date")],
        commands=[("all of it", str(choice["again"]))],
    )


def others_section(others: list[tuple[str, Record]]) -> Section:
    about = "Runs that depart from their preset, episodes of other shapes, methods of your own."
    return Section(
        "Other measurements",
        [about, "The command `semishot evaluate` tests a run folder again."],
        [grid("Mean over splits ± standard error", *other_rows(others))],
        settings=settings([record for _, record in others]),
    )


def settings(records: Sequence[Record]) -> list[tuple[str, str]]:
    """What the records were measured with, where and when; every value that occurs."""

    def each(texts: list[str]) -> str:
        return "; ".join(dict.fromkeys(texts))

    recipes = [r["recipe"] for r in records if r["updates"]]
    seconds = sorted(r["seconds"] for r in records)
    found = {
        "split seeds": ", ".join(map(str, sorted({r["split_seed"] for r in records}))),
        "test episodes": each([_episode(r) for r in records]),
        "episodes per split": each([str(r["episodes"]) for r in records]),
        "training episodes": each([_episode(r["train"]) for r in records if "way" in r["train"]]),
        "recipe": each([_pairs(Recipe().as_dict() | recipe) for recipe in recipes]),
        "device": each([r["device"] for r in records]),
        "versions": each([_pairs(r["versions"]) for r in records]),
        "date": each([r["date"] for r in records]),
        "wall time": f"{seconds[0]:,.1f} to {seconds[-1]:,.1f} s"
        if seconds[0] < seconds[-1]
        else f"{seconds[0]:,.1f} s",
    }
    return [(name, text) for name, text in found.items() if text]


def _episode(shape: Record) -> str:
    return (
        f"{shape['way']}-way {shape['shot']}-shot, {shape['query']} queries, M = {shape['unlabeled']}, "
        f"H = {shape['distractors']}"
    )


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in values.items())


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(_shown, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
