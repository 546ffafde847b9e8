"""Results as Markdown: `python benchmarks/summarize.py` fills docs/speed.md."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from pages import between, versions_of
from speed_tables import Result, table

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- speed tables -->", "<!-- /speed tables -->"
TITLES = {
    "update": "Time per update and run",
    "label": "An answer in the browser",
}


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
