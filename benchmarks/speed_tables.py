"""Each kind of result as a Markdown table, aligned so that it also reads well in a terminal."""

from collections.abc import Sequence
from typing import Any

Result = dict[str, Any]


def table(result: Result) -> str:
    """One result as a Markdown table, aligned so that it also reads well in a terminal."""
    return {"update": updates, "label": answers}[result["benchmark"]](result)


def updates(result: Result) -> str:
    cases = list(dict.fromkeys(row["case"] for row in result["rows"]))
    cells: dict[str, dict[str, str]] = {}
    for row in result["rows"]:
        cell = f"{number(row['us_per_update_and_run'])} ({ratio(row['times_faster_than_eager'])})"
        cells.setdefault(label(row), {})[row["case"]] = cell
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
    return f"{markdown(head, rows)}\n\n{loaded(held)}"


def loaded(settings: dict[str, Any]) -> str:
    """How busy the machine was."""
    return f"The load average was {settings['load_average_before']:.1f} before it began."


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
