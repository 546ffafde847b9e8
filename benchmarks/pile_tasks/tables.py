"""Tables of `benchmarks/piles.py`, from its result files alone."""

from itertools import product
from typing import Any

import numpy as np

from pages import markdown, versions_of
from pile_tasks.figures import PAIRED
from pile_tasks.methods import BEFORE, OURS

Found = dict[str, Any]
BEGIN, END = "<!-- tables: python benchmarks/piles.py --page -->", "<!-- end of tables -->"
PARTS = {"choose": "The part for choosing", "report": "The reported part"}
SHOWN = 8
"""Cells of a figure that are named where they are worse than before."""
COLUMNS = {
    "accuracy": ("accuracy", 100, 1),
    "auroc": ("AUROC", 1, 3),
    "sorted": ("sorted right", 100, 1),
    "lost": ("lost", 100, 1),
    "found": ("found", 100, 1),
    "log_loss": ("log loss", 1, 3),
    "ece": ("ECE", 100, 1),
    "class_log_loss": ("log loss of classes", 1, 3),
    "class_ece": ("ECE of classes", 100, 1),
    "count": ("count off by", 100, 1),
    "covered": ("interval covers", 100, 0),
    "seconds": ("seconds", 1, 2),
}


def value(found: Found, key: str) -> float:
    """The mean over tasks; NaN where the cell has no such figure."""
    own = found.get(key)
    return np.nan if not own else float(np.mean(own) if key in PAIRED else own[0])


def shown(found: Found, key: str) -> str:
    _, scale, digits = COLUMNS[key]
    number = value(found, key)
    return "" if np.isnan(number) else f"{scale * number:.{digits}f}"


def lines(entry: Found) -> list[str]:
    """Of one cell, as it is finished."""
    rows = [f"{entry['cell']} ({entry['tasks']} tasks)"]
    for name, found in entry["methods"].items():
        each = [f"{COLUMNS[key][0]} {shown(found, key) or '-':>5}" for key in COLUMNS]
        rows.append(f"  {name:20} {'  '.join(each)}")
    return rows


def page_parts(results: list[Found]) -> list[str]:
    found = []
    for result in results:
        found.append(f"## {PARTS[result['part']]}")
        cells = result["cells"]
        tasks = f"{max(cell['tasks'] for cell in cells)} tasks a cell, 2 of large piles"
        found.append(f"{tasks}; {versions_of(result)}; {result['processor']}; {result['date']}.")
        found.append(means_table(f"All {len(cells)} cells", cells))
        reported = cells if result["part"] == "report" else []
        for kind in dict.fromkeys(cell["kind"] for cell in reported):
            own = [cell for cell in cells if cell["kind"] == kind and not cell["note"]]
            found.append(means_table(f"{kind.capitalize()}: {len(own)} cells", own))
        if all(BEFORE in cell["methods"] for cell in cells):
            found.append(aims(cells))
    return found


def means_table(title: str, cells: list[Found]) -> str:
    """A row for each method, over all cells that have the figure."""
    rows = []
    for name in names(cells):
        own = [cell["methods"][name] for cell in cells]
        average = {key: [mean([value(f, key) for f in own])] for key in COLUMNS}
        rows.append([name, *(shown(average, key) for key in COLUMNS)])
    head = [title, *(column for column, *_ in COLUMNS.values())]
    return markdown(head, rows)


def mean(values: list[float]) -> float:
    """Of those that are not NaN."""
    kept = [v for v in values if not np.isnan(v)]
    return float(np.mean(kept)) if kept else np.nan


def names(cells: list[Found]) -> list[str]:
    """Methods that ran in all cells."""
    first = list(cells[0]["methods"])
    return [name for name in first if all(name in cell["methods"] for cell in cells)]


def aims(cells: list[Found]) -> str:
    """What was wanted of the rule, and in how many cells it is so."""
    ours, before = ([cell["methods"][name] for cell in cells] for name in (OURS, BEFORE))
    rows, named = [], []
    for key in PAIRED:
        title = COLUMNS[key][0]
        ahead = differences(cells, BEFORE, key)
        worse = [found for found in ahead if found[1] < -2 * found[2] - 1e-9]
        better = sum(mean > 2 * error + 1e-9 for _, mean, error in ahead)
        worse.sort(key=lambda found: found[1])
        named += [f"- {title} {m:+.3f} ± {error:.3f}: {name}" for name, m, error in worse[:SHOWN]]
        text = f"{better} above, {len(worse)} below, of {len(ahead)}"
        rows.append([f"{title}: more than two errors from before", "0 below", text])
    for key, most in (("log_loss", "0.65"), ("ece", "0.5")):
        now, then = (np.mean([value(found, key) for found in each]) for each in (ours, before))
        rows.append([f"{COLUMNS[key][0]}, of before's", f"at most {most}", f"{now / then:.2f}"])
    lost = [value(found, "lost") for found in ours if "lost" in found]
    within = f"{100 * np.mean([0.02 <= share <= 0.07 for share in lost]):.0f} %"
    rows.append(["2 to 7 % of the known rows lost", "90 % of cells", within])
    covered = f"{100 * np.mean([value(found, 'covered') for found in ours]):.0f} %"
    rows.append(["interval covers the count", "90 %", covered])
    others = [cell for cell in cells if cell["kind"] in ("digits", "text", "tables")]
    for rival, key in product(("label propagation", "LabelSpreading"), ("accuracy", "auroc")):
        ahead = differences(others, rival, key)
        short = sum(mean < -error - 1e-9 for _, mean, error in ahead)
        title = f"{COLUMNS[key][0]} on digits, text and tables: an error below {rival}"
        rows.append([title, "0", f"{short} of {len(ahead)}"])
    parts = [markdown(["aim", "wanted", "measured"], rows)]
    parts += (
        [f"Cells more than two errors below, the {SHOWN} lowest of each figure:", "\n".join(named)]
        if named
        else []
    )
    return "\n\n".join(parts)


def differences(cells: list[Found], other: str, key: str) -> list[tuple[str, float, float]]:
    """Ours minus the other's for each cell: its name, the mean over tasks and its standard error."""
    found = []
    for cell in cells:
        ours, theirs = (np.array(cell["methods"][name].get(key, [])) for name in (OURS, other))
        if len(ours):
            each = ours - theirs
            error = each.std(ddof=1) / len(each) ** 0.5 if len(each) > 1 else 0.0
            found.append((cell["cell"], each.mean(), error))
    return found


def packed(entry: Found) -> Found:
    """A cell as it is stored: figures in the order of COLUMNS, without their names."""
    rows = {name: [found.get(key) for key in COLUMNS] for name, found in entry["methods"].items()}
    return {**entry, "methods": rows}


def unpacked(entry: Found) -> Found:
    rows = entry["methods"].items()
    pairs = {name: zip(COLUMNS, found, strict=True) for name, found in rows}
    return {**entry, "methods": {n: {k: v for k, v in own if v} for n, own in pairs.items()}}
