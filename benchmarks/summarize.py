"""Results as Markdown: `python benchmarks/summarize.py` fills docs/speed.md and draws its two pictures."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- speed tables -->", "<!-- /speed tables -->"
TITLES = {
    "update": "Time per update and run",
    "photographs": "Time per update and run on photographs, 3 × 84 × 84",
    "sampler": "Drawing episodes",
    "evaluation": "Evaluation",
    "scaling": "How the cost grows",
    "build_pool": "Preparing tieredImageNet",
    "logistic": "Table 5's classifiers",
    "classifier": "The estimator on large piles",
    "engine": "Fleets on several machines",
    "label": "An answer in the browser",
}
COLORS = {"easyfsl": "#c44e52", "eager loop": "#dd8452", "our fleet": "#4c72b0"}

Result = dict[str, Any]


# Tables


def table(result: Result) -> str:
    """One result as a Markdown table, aligned so that it also reads well in a terminal."""
    return {
        "update": updates,
        "photographs": updates,
        "sampler": draws,
        "evaluation": episodes,
        "scaling": growth,
        "build_pool": builds,
        "logistic": fits,
        "classifier": piles,
        "engine": machines,
        "label": answers,
    }[result["benchmark"]](result)


def updates(result: Result) -> str:
    cases = list(dict.fromkeys(row["case"] for row in result["rows"]))
    cells: dict[str, dict[str, str]] = {}
    for row in result["rows"]:
        cell = f"{number(row['us_per_update_and_run'])} ({ratio(row['times_faster_than_eager'])})"
        cells.setdefault(label(row), {})[row["case"]] = cell
    rows = [[name, *(found.get(case, "") for case in cases)] for name, found in cells.items()]
    text = markdown(["µs per update and run (× faster than the eager loop)", *cases], rows)
    return "\n\n".join([text, *result["settings"]["notes"]])


def draws(result: Result) -> str:
    head = ["episode", "episodes / s", "s for 20,000", "NumPy loop, episodes / s", "ratio"]
    rows = [
        [
            f"{row['way']}-way, M = {row['unlabeled']}, H = {row['distractors']}",
            number(row["episodes_per_second"]),
            f"{row['seconds_for_20000']:.2f}",
            number(row["loop_episodes_per_second"]),
            ratio(row["times_faster_than_loop"]),
        ]
        for row in result["rows"]
    ]
    return markdown(head, rows)


def episodes(result: Result) -> str:
    rows = [
        [
            f"{row['classes']:,}",
            row["contender"] + (f", {row['runs']} runs" if row["runs"] > 1 else ", one run"),
            number(row["episodes_per_second"]),
            ratio(row["times_faster_than_loop"]),
        ]
        for row in result["rows"]
    ]
    return markdown(["test classes", "", "episodes / s", "ratio"], rows)


def growth(result: Result) -> str:
    head = ["runs", "way", "M", "image", "images", "µs per update and run", "µs per image", "ratio"]
    rows = []
    for row in result["rows"]:
        channels, side = row["image"]
        cells = {
            "runs": str(row["runs"]),
            "way": str(row["way"]),
            "unlabeled": str(row["unlabeled"]),
            "image": f"{channels} × {side} × {side}",
        }
        if row["factor"] in cells:
            cells[row["factor"]] = f"**{cells[row['factor']]}**"
        rows.append(
            [
                *cells.values(),
                str(row["images_per_update"]),
                number(row["us_per_update_and_run"]),
                number(row["us_per_image"]),
                ratio(row["times_base"]),
            ]
        )
    return markdown(head, rows)


def builds(result: Result) -> str:
    every = result["settings"]["all"]
    head = ["build", "images", "s", "images / s", f"min for {every:,}"]
    head += ["parent, MiB", "largest worker, MiB", "together, MiB"]
    rows = [
        [
            row["build"],
            f"{row['images']:,}",
            number(row["seconds"]),
            number(row["images_per_second"]),
            number(row["minutes_for_all"]),
            *(f"{row[name]:,.0f}" for name in ("parent_mib", "worker_mib", "together_mib")),
        ]
        for row in result["rows"]
    ]
    return markdown(head, rows)


def fits(result: Result) -> str:
    head = ["classifier", "shot", "features", "s for 600 episodes", "scikit-learn, s", "ratio"]
    rows = [
        [
            row["classifier"],
            str(row["shot"]),
            f"{row['features']:,}",
            number(row["seconds_for_600"]),
            number(row["loop_seconds_for_600"]),
            ratio(row["times_faster_than_loop"]),
        ]
        for row in result["rows"]
    ]
    return markdown(head, rows)


def piles(result: Result) -> str:
    held = result["settings"]
    head = [f"{held['classes']} classes, {held['features']:,} features", "pile", "fit, s"]
    head += ["CPU, s", "predict, s", "µs per example", "memory, MiB", "LabelSpreading"]
    names = {
        "fit_seconds": number,
        "fit_cpu_seconds": number,
        "predict_seconds": number,
        "us_per_example": number,
        "memory_mib": number,
        "times_faster": lambda value: f"{ratio(value)} its speed",
    }
    rows = [
        [
            row["contender"],
            f"{row['pile']:,}",
            *(write(row[name]) if name in row else "" for name, write in names.items()),
        ]
        for row in result["rows"]
    ]
    return markdown(head, rows)


def machines(result: Result) -> str:
    held = result["settings"]
    head = ["", f"{held['fleets']} fleets of {held['runs']} runs, {held['updates']} updates, s"]
    head += [f"{held['waits']} tasks that wait 1 s, s", "a task of nothing, ms"]
    names = ("fleets_seconds", "waits_seconds", "task_ms")
    rows = [
        [row["where"], *(number(row[name]) if name in row else "" for name in names)]
        for row in result["rows"]
    ]
    load = held["load_average_before"]
    return f"{markdown(head, rows)}\n\nThe load average was {load:.1f} before it began."


def answers(result: Result) -> str:
    held = result["settings"]
    head = [f"{held['answers']} answers each", "pile", "median, ms", "95th percentile, ms"]
    head += ["start, s", "server, MiB", "page, MiB"]
    names = ("median_ms", "p95_ms", "start_seconds", "server_mib", "page_mib")
    rows = [
        [row["place"], f"{row['images']:,}", *(number(row[name]) for name in names)]
        for row in result["rows"]
    ]
    load = held["load_average_before"]
    return f"{markdown(head, rows)}\n\nThe load average was {load:.1f} before it began."


def label(row: dict[str, Any]) -> str:
    contender: str = row["contender"]
    return contender.replace("our fleet", f"our fleet of {row['runs']}")


def number(value: float) -> str:
    """Three digits that matter: 0.123, 1.23, 12.3, 123, 12,300."""
    rounded = float(f"{value:.3g}")
    return f"{value:#.3g}" if rounded < 100 else f"{rounded:,.0f}"


def ratio(value: float) -> str:
    return f"{number(value)}×"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, numbers to the right."""
    wide = [max(len(row[c]) for row in [head, *rows]) for c in range(len(head))]
    lines = [
        "| "
        + " | ".join(cell.rjust(w) if c else cell.ljust(w) for c, (cell, w) in enumerate(pairs))
        for pairs in (list(zip(row, wide, strict=True)) for row in [head, *rows])
    ]
    rule = "|".join("-" * (w + 2) if not c else "-" * (w + 1) + ":" for c, w in enumerate(wide))
    return "\n".join([f"{lines[0]} |", f"|{rule}|", *(f"{line} |" for line in lines[1:])])


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


def about(result: Result) -> str:
    where = result["device"]
    if result["benchmark"] == "sampler":
        where = "One core"  # of the machine whose processor follows
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    quick = " A quick trial, not a measurement." if result["quick"] else ""
    return f"{where} ({result['processor']}); {versions}; {result['date']}.{quick}"


def fill(document: str, tables: str) -> str:
    """The document with the tables between its markers."""
    before, rest = document.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


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
    paths = sorted(
        given.results.glob("*-*.json"), key=lambda p: (p.stem.split("-")[1] != "cuda", p)
    )
    results = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
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
