"""Each kind of result as a Markdown table, aligned so that it also reads well in a terminal."""

from collections.abc import Sequence
from typing import Any

Result = dict[str, Any]


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
        "starts": starts,
        "label": answers,
        "runtimes": rates,
        "classify_photos": commands,
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
    return f"{markdown(head, rows)}\n\n{loaded(held)}"


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


def starts(result: Result) -> str:
    held = result["settings"]
    head = [f"cached features of {held['images']:,} images", "version", "first output, s", "CPU, s"]
    head += ["result, s", "CPU, s"]
    names = ("first_seconds", "first_cpu_seconds", "seconds", "cpu_seconds")
    rows = [
        [
            row["command"],
            row["version"],
            *(f"{row[name]:.2f}" if name in row else "" for name in names),
        ]
        for row in result["rows"]
    ]
    return f"{markdown(head, rows)}\n\n{loaded(held)}"


def rates(result: Result) -> str:
    """A line for each encoder and runtime: batches on all threads, then single images on each."""
    threads = max(row["threads"] for row in result["rows"])
    batches = sorted({row["batch"] for row in result["rows"]})
    found: dict[tuple[str, str], dict[object, float]] = {}
    for row in result["rows"]:
        who, _, alone = row["runtime"].partition(", ")
        if row["threads"] == threads:
            line = found.setdefault((row["encoder"], who), {})
            line[alone or row["batch"]] = row["images_per_second"]
    head = [f"images / s, {threads} threads", "runtime"]
    head += [f"batches of {batch}" for batch in batches] + ["one by one"]
    columns = [*batches, "one by one"]
    rows = [
        [encoder, who, *(number(line[one]) if one in line else "" for one in columns)]
        for (encoder, who), line in found.items()
    ]
    held = result["settings"]
    versions = ", ".join(f"{who} {version}" for who, version in held["runtimes"].items())
    largest = max(row["difference"] for row in result["rows"])
    said = f"{versions}. Features differ from torch's by {largest:.1e} at most."
    return f"{markdown(head, rows)}\n\n{said} {loaded(held)}".rstrip()


PARTS = ("listing", "images", "learning", "page")
THREADED = ("reading", "decoding", "encoding")
"""Of the images, added up over threads."""


def commands(result: Result) -> str:
    held, first = result["settings"], result["rows"][0]
    size = held["megabytes"] / first["images"]
    head = [f"{first['images']:,} images of {size:.1f} MB", "s", "ratio"]
    used = "processor_seconds" in first  # files of before do not say it
    head += [*(["processor, ms / image"] if used else []), *PARTS]
    head += [f"{part}, threads" for part in THREADED]
    parts = (*PARTS, *THREADED)
    rows = [
        [
            row["what"],
            f"{row['seconds']:.1f}",
            ratio(first["seconds"] / row["seconds"]),
            *([f"{1000 * row['processor_seconds'] / row['images']:.1f}"] if used else []),
            *(f"{row['parts'][part]:.1f}" if part in row["parts"] else "" for part in parts),
        ]
        for row in result["rows"]
    ]
    notes = [f"{row['what']}: {row['note']}." for row in result["rows"] if "note" in row]
    said = " ".join([*notes, *filter(None, [loaded(held)])])
    return f"{markdown(head, rows)}\n\n{said}".rstrip()


def loaded(settings: dict[str, Any]) -> str:
    """How busy the machine was; files of before do not all say it."""
    if "load_average_before" not in settings:
        return ""
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
