"""Fill docs/encoders.md with tables from results/encoders.json: `python benchmarks/encoders_page.py`."""

import json
from pathlib import Path
from typing import Any

from pages import between, versions_of
from speed_tables import markdown

ROOT = Path(__file__).parents[1]
PAGE, RESULT = ROOT / "docs" / "encoders.md", ROOT / "results" / "encoders.json"
BEGIN, END = "<!-- encoder tables -->", "<!-- /encoder tables -->"
COLUMNS = {
    "sorted": "sorted right",
    "accuracy": "accuracy",
    "auroc": "AUROC",
    "found": "strangers found",
    "lost": "members lost",
}

Result = dict[str, Any]


def of_half(result: Result, half: str) -> dict[str, list[dict[str, Any]]]:
    """Encoder -> its rows, by number of labels."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in result[half]:
        found.setdefault(row["encoder"], []).append(row)
    return found


def figures(result: Result, half: str) -> str:
    speed = {row["encoder"]: row for row in result["speed"]}
    rows = []
    for name, held in of_half(result, half).items():
        values = [" / ".join(f"{100 * row[key]:.1f}" for row in held) for key in COLUMNS]
        rate = speed[name]
        rows.append([name, f"{rate['images_per_second']:.0f} ({rate['relative']:.2f})", *values])
    return markdown(["EfficientNet, pixels", "images / s (ratio)", *COLUMNS.values()], rows)


def gains(result: Result, half: str) -> str:
    """Over the first encoder, with the standard error of the paired difference."""
    keys = ("sorted", "accuracy", "auroc", "found")
    rows = []
    for name, held in list(of_half(result, half).items())[1:]:
        texts = [
            " / ".join(
                f"{100 * r[f'{key}_gain']:+.1f} ± {100 * r[f'{key}_gain_se']:.1f}" for r in held
            )
            for key in keys
        ]
        rows.append([name, *texts])
    return markdown([f"minus {result[half][0]['encoder']}", *(COLUMNS[k] for k in keys)], rows)


def fill(document: str, result: Result) -> str:
    tasks = result["report"][0]["tasks"]
    parts = [
        "In %, at 1 / 3 / 5 labels per class, on the 20 kinds of birds that were not used for choosing; "
        f"{tasks} tasks for each number of labels, half of them 5-way and half 10-way:",
        figures(result, "report"),
        "Differences, each with the standard error over the same tasks:",
        gains(result, "report"),
        "The same differences on the 20 kinds that were used for choosing:",
        gains(result, "choose"),
        f"One thread of {result['processor']}; {versions_of(result)}; {result['date']}.",
    ]
    return between(document, BEGIN, END, parts)


if __name__ == "__main__":
    held = json.loads(RESULT.read_text(encoding="utf-8"))
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), held), encoding="utf-8")
    print(PAGE)
