"""Results as Markdown: `python benchmarks/summarize.py` fills docs/speed.md."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pages import between, markdown, versions_of

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- speed tables -->", "<!-- /speed tables -->"
Result = dict[str, Any]
TITLES = {"update": "Time per update and run", "label": "An answer in the browser"}


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
    """The results in a folder of which the page has a section, those of a GPU first."""
    paths = sorted(folder.glob("*-*.json"), key=lambda p: (p.stem.split("-")[1] != "cuda", p))
    results = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return [result for result in results if result["benchmark"] in TITLES]


def about(result: Result) -> str:
    quick = " A quick trial, not a measurement." if result["quick"] else ""
    where = f"{result['device']} ({result['processor']})"
    return f"{where}; {versions_of(result)}; {result['date']}.{quick}"


def fill(document: str, tables: str) -> str:
    """The document with the tables between its marks."""
    return between(document, BEGIN, END, [tables])


def table(result: Result) -> str:
    """One result as a Markdown table, aligned so that it also reads well in a terminal."""
    return {"update": updates, "label": answers}[result["benchmark"]](result)


def updates(result: Result) -> str:
    cases = list(dict.fromkeys(row["case"] for row in result["rows"]))
    cells: dict[str, dict[str, str]] = {}
    for row in result["rows"]:
        name = row["contender"].replace("our fleet", f"our fleet of {row['runs']}")
        time, times = number(row["us_per_update_and_run"]), number(row["times_faster_than_eager"])
        cells.setdefault(name, {})[row["case"]] = f"{time} ({times}×)"
    rows = [[name, *(found.get(case, "") for case in cases)] for name, found in cells.items()]
    text = markdown(["µs per update and run (× faster than the eager loop)", *cases], rows)
    return "\n\n".join([text, *result["settings"]["notes"]])


def answers(result: Result) -> str:
    held = result["settings"]
    head = [f"{held['answers']} answers each", "pile", "median, ms", "95th percentile, ms"]
    head += ["start, s", "server, MiB", "page, MiB"]
    names = ("median_ms", "p95_ms", "start_seconds", "server_mib", "page_mib")
    rows = [
        [row["place"], f"{row['images']:,}", *(number(row[name]) for name in names)]
        for row in result["rows"]
    ]
    busy = f"The load average was {held['load_average_before']:.1f} before it began."
    return f"{markdown(head, rows)}\n\n{busy}"


def number(value: float) -> str:
    """Three digits that matter: 0.123, 1.23, 12.3, 123, 12,300."""
    rounded = float(f"{value:.3g}")
    return f"{value:#.3g}" if rounded < 100 else f"{rounded:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "speed")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "speed.md")
    given = parser.parse_args()
    results = published(given.results)
    if not results:
        raise SystemExit(f"no results in {given.results}: run `python benchmarks/update.py` first")
    text = fill(given.page.read_text(encoding="utf-8"), page(results))
    given.page.write_text(text, encoding="utf-8")
    print(f"{given.page}: {len(results)} tables")


if __name__ == "__main__":
    main()
