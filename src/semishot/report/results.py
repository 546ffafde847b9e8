"""Published results: records in small files under `results/`, and the page made of them alone."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from semishot.errors import InputError
from semishot.paper import presets, published
from semishot.report import baseline_tables, mask_tables, pictures, plots, tables
from semishot.report.tables import Record
from semishot.system.files import read_json, reading, write_whole
from semishot.system.locks import Lock

PAGE = """# Results

Generated from the files in `results/` by `semishot results`; do not edit.

Accuracies in %, mean ± standard error over labeled/unlabeled splits (std with ddof = 0 over the
square root of the number of splits, as in the paper), 600 test episodes per split.
"""


SETTINGS = (
    *("dataset", "preset", "model", "features", "options", "variant", "source"),
    *("split", "split_seed", "episodes"),
    *("way", "shot", "query", "unlabeled", "distractors", "within_group", "recipe", "train"),
)
"""What a record is a measurement of: a second one of the same takes the place of the first."""


def publish(records: Sequence[Record], path: Path) -> None:
    """Add records to a result file, one per line, without the accuracies of single episodes."""
    with Lock(path.with_name(f".{path.name}.lock")):
        merged = {settings(record): record for record in (read(path) if path.exists() else [])}
        for record in records:
            short = {k: v for k, v in record.items() if k != "episode_accuracies"}
            merged[settings(record)] = short
        lines = [json.dumps(record, ensure_ascii=False) for record in merged.values()]
        text = "[\n" + ",\n".join(lines) + "\n]\n"
        write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def settings(record: Record) -> str:
    """The same for two measurements of the same."""
    return json.dumps([record.get(name) for name in SETTINGS])


def read(path: Path) -> list[Record]:
    try:
        records: list[Record] = read_json(path)
    except (OSError, InputError) as error:
        raise InputError(f"cannot read result file {path}: {error}") from error
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise InputError(f"{path} is no result file: it holds no list of records")
    return records


def page(folder: Path) -> str:
    """`docs/results.md`: every published table, with what it was run on and how to run it again."""
    parts = [PAGE]
    for name, table in published.TABLES.items():
        found = sorted(folder.glob(f"*/{name}-*.json"))
        for path in found:
            with reading(path):
                parts.append(_table(name, table, read(path)))
        if not found:
            parts.append(_not_run(name, table))
    for path in figures(folder):
        with reading(path):
            parts.append(_figure(path, read(path)))
    for path in sorted(folder.glob("*/choice*.json")):
        with reading(path):
            parts.append(_choice(read_json(path)))
    for path in sorted(folder.glob("*/ablations*.json")):
        with reading(path):
            parts.append(_ablations(read(path), only=path.stem.partition("-")[2]))
    for path in sorted(folder.glob("*/table5*.json")):
        with reading(path):
            parts.append(baseline_tables.table5_section(read(path)))
    for path in mask_figures(folder):
        picture = f"![Mask values ({path.parent.name})]({picture_name(path)})\n"
        with reading(path):
            parts += [mask_tables.masks_section(read(path)), picture]
    if not any(folder.glob("*/*.json")):
        raise InputError(
            f"no result files in {folder}; `semishot reproduce table1 --publish {folder}`"
        )
    return "\n".join(parts)


def figures(folder: Path) -> list[Path]:
    """The result files that become a figure of the page."""
    return sorted(folder.glob(f"*/{published.FIGURE_UNLABELED}-*.json"))


def mask_figures(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/figure-masks.json"))


def picture_name(path: Path) -> str:
    return f"{path.stem}-{path.parent.name}.png"


def _provenance(records: Sequence[Record], command: str) -> str:
    def each(key: str) -> str:
        return ", ".join(sorted({str(r[key]) for r in records}))

    versions = ", ".join(f"{k} {v}" for k, v in records[0]["versions"].items())
    seeds = sorted({r["split_seed"] for r in records})
    return (
        f"Split seeds {seeds[0]} to {seeds[-1]}; {each('device')}; {versions}; {each('date')}. "
        f"Again: `{command}`.\n"
    )


def rerun(name: str, table: published.Table, records: Sequence[Record]) -> str:
    """The command that measures these records, of a table that may not be complete."""
    dataset, preset, updates = (records[0][k] for k in ("dataset", "preset", "updates"))
    which = shlex.join(["--dataset", dataset, "--preset", preset])
    command = f"semishot reproduce {name} {which} --splits {_splits(records)}"
    if updates != presets.preset(preset, dataset).recipe.updates:
        command += f" --updates {updates}"
    for option, key, known in (
        ("shots", "shot", table.shots),
        ("models", "model", published.MODELS),
    ):
        held = {r[key] for r in records}
        if held < set(known):
            command += f" --{option} " + " ".join(str(value) for value in known if value in held)
    return command


def _table(name: str, table: published.Table, records: list[Record]) -> str:
    dataset, preset, updates = (records[0][k] for k in ("dataset", "preset", "updates"))
    parts = [
        f"## {table.title} ({dataset}, 5-way), preset `{preset}`, {updates:,} updates\n",
        f"{presets.preset(preset, dataset).about.capitalize()}.\n",
    ]
    beside_paper = dataset == table.dataset
    for shot, m in tables.parts_of(table, records):
        measured = tables.cells(records, shot, m)
        splits = max(ours.splits for ours in measured.values() if ours)
        parts.append(f"{shot}-shot, M = {m} unlabeled images per class at test, {splits} splits:\n")
        rows = tables.table_rows(table, records, shot, m, beside_paper)
        parts.append(tables.as_markdown(*rows) + "\n")
    best = best_differences(table, records) if beside_paper else {}
    if beside_paper:
        parts.append(verdict(table, best) + "\n")
    if len(best) < len(table.cells):
        parts.append("Cells marked - and shots not shown have not been run.\n")
    parts.append(_provenance(records, rerun(name, table, records)))
    return "\n".join(parts)


def best_differences(
    table: published.Table, records: list[Record]
) -> dict[tuple[str, int, int], float]:
    """How far each cell is above the paper's, in points, at the M where it is highest."""
    best: dict[tuple[str, int, int], float] = {}
    for shot, m in tables.parts_of(table, records):
        for (model, h), ours in tables.cells(records, shot, m).items():
            if ours:
                key = model, shot, h
                best[key] = max(best.get(key, -np.inf), ours.mean - table.cells[key].mean)
    return best


def verdict(table: published.Table, best: dict[tuple[str, int, int], float]) -> str:
    above, better = sum(gap >= 0 for gap in best.values()), "At the better M, "
    return (
        f"{better if len(table.tests) > 1 else ''}{above} of the {len(best)} cells measured are "
        f"at or above the paper's; the lowest difference is {min(best.values()):+.2f}."
    )


def _not_run(name: str, table: published.Table) -> str:
    return (
        f"## {table.title} ({table.dataset})\n\nThis table has not been run. With the data at hand: "
        f"`semishot data prepare {table.dataset} --source FOLDER`, then `semishot reproduce {name}`.\n"
    )


def _figure(path: Path, records: list[Record]) -> str:
    """A picture and the numbers under it: accuracy at each M, for each model and column."""
    dataset, preset, updates = (records[0][k] for k in ("dataset", "preset", "updates"))
    table = published.table(published.FIGURE_UNLABELED, dataset)
    title = f"{table.title}: {dataset}, preset `{preset}`, {updates:,} updates"
    parts = [f"## {title}\n", f"![{title}]({picture_name(path)})\n"]
    for shot in sorted({r["shot"] for r in records}):
        parts.append(tables.as_markdown(*tables.curve_rows(table, records, shot)) + "\n")
    parts.append(_provenance(records, rerun(published.FIGURE_UNLABELED, table, records)))
    return "\n".join(parts)


def _choice(choice: dict[str, Any]) -> str:
    """How a recipe was chosen, on validation classes."""
    text = "\n".join([f"## {choice['title']}\n", choice["about"] + "\n"])
    origin = (
        f"{choice['device']}; {choice['versions']}; {choice['date']}. Again: `{choice['again']}`.\n"
    )
    return "\n".join([text, tables.as_markdown(*choice_rows(choice)) + "\n", origin])


def choice_rows(choice: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            str(v["round"]),
            v["change"],
            *(f"{v[f'accuracy_{h}']:.2f} ± {v[f'half_range_{h}']:.2f}" for h in (0, 5)),
        ]
        for v in choice["variants"]
    ]
    return ["round", "recipe", *(tables.COLUMNS[h] for h in published.DISTRACTORS)], rows


def write_page(folder: Path, out: Path) -> None:
    """The page, and the pictures beside it."""
    text = page(folder)
    for path in figures(folder):
        with reading(path):
            plots.accuracy_over_unlabeled(read(path), out.with_name(picture_name(path)))
    for path in mask_figures(folder):
        with reading(path):
            pictures.draw_masks(read(path), out.with_name(picture_name(path)))
    write_whole(out, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def ablations_as_text(records: list[Record]) -> str:
    return tables.as_text(*ablation_rows(records))


def ablation_rows(records: list[Record]) -> tuple[list[str], list[list[str]]]:
    """Each variant beside the cell it departs from, split by split."""
    base = {_key(r): r["accuracy"] for r in records if not r["variant"]}
    groups: dict[tuple[str, int, str, str], dict[int, list[tuple[float, float]]]] = {}
    for record in records:
        if record["variant"]:
            pair = 100 * record["accuracy"], 100 * base[_key(record)]
            name = record["preset"], record["updates"], record["model"], record["variant"]
            groups.setdefault(name, {}).setdefault(record["distractors"], []).append(pair)
    header = ["preset", "updates", "model", "change"]
    for h in published.DISTRACTORS:
        header += [tables.COLUMNS[h], "difference"]
    rows = []
    for (preset, updates, model, variant), columns in groups.items():
        row = [preset, f"{updates:,}", published.MODELS[model], variant]
        for h in published.DISTRACTORS:
            pairs = np.array(columns.get(h, []))
            if not len(pairs):
                row += ["", ""]
                continue
            gap = pairs[:, 0] - pairs[:, 1]
            row.append(f"{pairs[:, 0].mean():.2f}")
            row.append(f"{gap.mean():+.2f} ± {gap.std() / len(gap) ** 0.5:.2f}")
        rows.append(row)
    return header, rows


def _ablations(records: list[Record], only: str) -> str:
    return "\n".join(
        [
            f"## What made the numbers ({records[0]['dataset']})"
            + (f": {only}\n" if only else "\n"),
            ablations_note(records) + "\n",
            tables.as_markdown(*ablation_rows(records)) + "\n",
            _provenance(records, ablations_command(records, only)),
        ]
    )


def ablations_note(records: Sequence[Record]) -> str:
    (m,) = {r["unlabeled"] for r in records}
    return (
        f"One change at a time, M = {m} at test; `difference` is to the preset's own cell, split by split, "
        f"with the standard error of that difference over {_splits(records)} splits."
    )


def ablations_command(records: Sequence[Record], only: str) -> str:
    dataset = records[0]["dataset"]
    command = f"semishot reproduce ablations --dataset {dataset} --splits {_splits(records)}"
    return f"{command} --only {shlex.quote(only)}" if only else command


def _splits(records: Sequence[Record]) -> int:
    return len({r["split_seed"] for r in records})


def _key(record: Record) -> tuple[str, str, int, int]:
    return record["preset"], record["model"], record["distractors"], record["split_seed"]
