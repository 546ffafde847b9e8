"""Results as Markdown: `python benchmarks/summarize.py` fills docs/speed.md and draws its two pictures."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pages import between, versions_of
from speed_tables import Result, label, number, table

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- speed tables -->", "<!-- /speed tables -->"
TITLES = {
    "update": "Time per update and run",
    "sampler": "Drawing episodes",
    "evaluation": "Evaluation",
    "classifier": "The estimator on large piles",
    "label": "An answer in the browser",
}
COLORS = {"easyfsl": "#c44e52", "eager loop": "#dd8452", "our fleet": "#4c72b0"}


# The page


def page(results: Sequence[Result]) -> str:
    """Every result below its title, with the machine it was measured on."""
    parts = []
    for benchmark, title in TITLES.items():
        found = [r for r in results if r["benchmark"] == benchmark]
        if found:
            parts.append(f"### {title}")
        for result in found:
            parts += [about(result), table(result)]
    return "\n\n".join(parts)


def published(folder: Path) -> list[Result]:
    """The results in a folder, those of a GPU first."""
    paths = sorted(folder.glob("*-*.json"), key=lambda p: (p.stem.split("-")[1] != "cuda", p))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def about(result: Result) -> str:
    where = result["device"]
    if result["benchmark"] == "sampler":
        where = "One core"  # of the machine whose processor follows
    quick = " A quick trial, not a measurement." if result["quick"] else ""
    return f"{where} ({result['processor']}); {versions_of(result)}; {result['date']}.{quick}"


def fill(document: str, tables: str) -> str:
    """The document with the tables between its marks."""
    return between(document, BEGIN, END, [tables])


# The plot


def plot(results: Sequence[Result], path: Path) -> None:
    """Bars of time per update and run on a log scale: a column per device, a row per case."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    cases = {"supervised": "Supervised", "masked, distractors": "Masked k-Means with distractors"}
    shown = {
        (line, column): [row for row in result["rows"] if row["case"] == case]
        for line, case in enumerate(cases)
        for column, result in enumerate(results)
    }
    figure, axes = plt.subplots(
        len(cases), len(results), figsize=(5.6 * len(results), 5.6), sharex=True, squeeze=False
    )
    for (line, column), rows in shown.items():
        bars(axes[line][column], rows)
        title = list(cases.values())[line]
        axes[line][column].set_title(f"{title}, {results[column]['device']}", fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("µs per update and run (log scale)")
    values = [row["us_per_update_and_run"] for rows in shown.values() for row in rows]
    axes[0][0].set_xlim(min(values) / 3, max(values) * 6)  # room for the numbers
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def bars(axis: Any, rows: Sequence[dict[str, Any]]) -> None:
    values = [row["us_per_update_and_run"] for row in rows]
    drawn = axis.barh(
        range(len(rows)), values, color=[COLORS[row["contender"]] for row in rows], height=0.7
    )
    axis.bar_label(drawn, [number(value) for value in values], padding=3, fontsize=9)
    axis.set_xscale("log")
    axis.set_yticks(range(len(rows)), [label(row) for row in rows])
    axis.invert_yaxis()
    axis.spines[["top", "right"]].set_visible(False)


def plot_piles(result: Result, path: Path) -> None:
    """Seconds over the size of the pile, both on log scales, beside a line of slope one."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    ours = [row for row in result["rows"] if row["contender"] == "PrototypeClassifier"]
    rows = [row for row in ours if "us_per_example" in row]
    piles = [row["pile"] for row in rows]
    figure, axis = plt.subplots(figsize=(5.6, 3.6))
    for name, marker in (("fit", "o"), ("predict", "s")):
        axis.plot(piles, [row[f"{name}_seconds"] for row in rows], marker=marker, label=name)
    last = rows[-1]["fit_seconds"]
    axis.plot(
        piles, [last * pile / piles[-1] for pile in piles], ":", color="0.5", label="in proportion"
    )
    axis.set(xscale="log", yscale="log", xlabel="unlabeled examples", ylabel="seconds")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "speed")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "speed.md")
    parser.add_argument("--plot", type=Path, default=ROOT / "docs" / "speed.png")
    given = parser.parse_args()
    results = published(given.results)
    if not results:
        raise SystemExit(f"no results in {given.results}: run `python benchmarks/run_all.py` first")
    text = fill(given.page.read_text(encoding="utf-8"), page(results))
    given.page.write_text(text, encoding="utf-8")
    print(f"{given.page}: {len(results)} tables")
    trained = [result for result in results if result["benchmark"] == "update"]
    try:
        plot(trained, given.plot)
        print(given.plot)
        for result in (r for r in results if r["benchmark"] == "classifier"):
            plot_piles(result, given.plot.with_name("pile.png"))
            print(given.plot.with_name("pile.png"))
    except ImportError as error:
        print(f"no plot: {error}")


if __name__ == "__main__":
    main()
