"""Published results: records in small files under `results/`, and the page made of them alone."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from semishot import paper, tables
from semishot.errors import InputError
from semishot.files import write_whole
from semishot.tables import Record

PAGE = """# Results

Generated from the files in `results/` by `semishot results`; do not edit.

Accuracies in %, mean ± standard error over labeled/unlabeled splits (std with ddof = 0 over the
square root of the number of splits, as in the paper), 600 test episodes per split.
"""


def publish(records: Sequence[Record], path: Path) -> None:
    """One record per line, without the accuracies of single episodes."""
    lines = [
        json.dumps(
            {k: v for k, v in record.items() if k != "episode_accuracies"}, ensure_ascii=False
        )
        for record in records
    ]
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read(path: Path) -> list[Record]:
    try:
        records: list[Record] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"cannot read result file {path}: {error}") from error
    return records


def page(folder: Path) -> str:
    """`docs/results.md`: every published table, with what it was run on and how to run it again."""
    parts = [PAGE]
    for path in sorted(folder.glob("*/table1-*.json")):
        parts.append(_table1(read(path)))
    for path in sorted(folder.glob("*/choice.json")):
        parts.append(_choice(json.loads(path.read_text(encoding="utf-8"))))
    for path in sorted(folder.glob("*/ablations*.json")):
        parts.append(_ablations(read(path), only=path.stem.partition("-")[2]))
    if len(parts) == 1:
        raise InputError(
            f"no result files in {folder}; `semishot reproduce table1 --publish {folder}`"
        )
    return "\n".join(parts)


def _provenance(records: Sequence[Record], command: str) -> str:
    first = records[0]
    versions = ", ".join(f"{k} {v}" for k, v in first["versions"].items())
    seeds = sorted({r["split_seed"] for r in records})
    return (
        f"Split seeds {seeds[0]} to {seeds[-1]}; {first['device']}; {versions}; {first['date']}. "
        f"Again: `{command}`.\n"
    )


def _table1(records: list[Record]) -> str:
    dataset, preset, updates = (records[0][k] for k in ("dataset", "preset", "updates"))
    splits, chosen = len({r["split_seed"] for r in records}), paper.preset(preset)
    shortened = "" if updates == chosen.recipe.updates else f" --updates {updates}"
    parts = [
        f"## Table 1 ({dataset}, 5-way 1-shot), preset `{preset}`, {updates:,} updates\n",
        f"{chosen.about.capitalize()}.\n",
    ]
    best: dict[tuple[str, int], float] = {}
    for m in sorted({r["unlabeled"] for r in records}):
        parts.append(f"M = {m} unlabeled images per class at test:\n")
        parts.append(
            tables.as_markdown(*tables.table1_rows(records, m, beside_paper=dataset == "omniglot"))
            + "\n"
        )
        for key, ours in tables.table1_cells(records, m).items():
            if ours:
                best[key] = max(best.get(key, -np.inf), ours.mean - paper.TABLE1[key].mean)
    above = sum(difference >= 0 for difference in best.values())
    if dataset == "omniglot":
        parts.append(
            f"At the better M, {above} of the {len(best)} cells measured are at or above the paper's; "
            f"the lowest difference is {min(best.values()):+.2f}.\n"
        )
    if len(best) < len(paper.TABLE1):
        parts.append(
            "Cells marked - have not been run; the others came from `semishot train` and "
            "`semishot evaluate --json`.\n"
        )
    command = f"semishot reproduce table1 --dataset {dataset} --preset {preset} --splits {splits}"
    command += shortened
    parts.append(_provenance(records, command))
    return "\n".join(parts)


def _choice(choice: dict[str, Any]) -> str:
    """How a recipe was chosen, on validation classes."""
    rows = [
        [
            str(v["round"]),
            v["change"],
            *(f"{v[f'accuracy_{h}']:.2f} ± {v[f'half_range_{h}']:.2f}" for h in (0, 5)),
        ]
        for v in choice["variants"]
    ]
    header = ["round", "recipe", *(tables.COLUMNS[h] for h in paper.TABLE1_DISTRACTORS)]
    text = "\n".join([f"## {choice['title']}\n", choice["about"] + "\n"])
    origin = (
        f"{choice['device']}; {choice['versions']}; {choice['date']}. Again: `{choice['again']}`.\n"
    )
    return "\n".join([text, tables.as_markdown(header, rows) + "\n", origin])


def write_page(folder: Path, out: Path) -> None:
    text = page(folder)
    write_whole(out, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def ablations_as_text(records: list[Record]) -> str:
    return tables.as_text(*_ablation_rows(records))


def _ablation_rows(records: list[Record]) -> tuple[list[str], list[list[str]]]:
    """Each variant beside the cell it departs from, split by split."""
    base = {_key(r): r["accuracy"] for r in records if not r["variant"]}
    groups: dict[tuple[str, int, str, str], dict[int, list[tuple[float, float]]]] = {}
    for record in records:
        if record["variant"]:
            pair = 100 * record["accuracy"], 100 * base[_key(record)]
            name = record["preset"], record["updates"], record["model"], record["variant"]
            groups.setdefault(name, {}).setdefault(record["distractors"], []).append(pair)
    header = ["preset", "updates", "model", "change"]
    for h in paper.TABLE1_DISTRACTORS:
        header += [tables.COLUMNS[h], "difference"]
    rows = []
    for (preset, updates, model, variant), columns in groups.items():
        row = [preset, f"{updates:,}", paper.MODELS[model], variant]
        for h in paper.TABLE1_DISTRACTORS:
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
    splits = len({r["split_seed"] for r in records})
    command = f"semishot reproduce ablations --splits {splits}" + (
        f" --only {only}" if only else ""
    )
    return "\n".join(
        [
            "## What made the numbers" + (f": {only}\n" if only else "\n"),
            "One change at a time, M = 5 at test; `difference` is to the preset's own cell, split by "
            f"split, with the standard error of that difference over {splits} splits.\n",
            tables.as_markdown(*_ablation_rows(records)) + "\n",
            _provenance(records, command),
        ]
    )


def _key(record: Record) -> tuple[str, str, int, int]:
    return record["preset"], record["model"], record["distractors"], record["split_seed"]
