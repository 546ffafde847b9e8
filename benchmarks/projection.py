"""Tables 1 to 3 on 1, 8 and 64 H200s: a projection, not a measurement. Prints a table in Markdown.

The real plan of each table, ten splits, is laid out as the engines do it: one fleet at a time on each
GPU, the largest first, on whichever is free. How long a fleet takes is interpolated between measured
fleets: at 28 x 28 those of `results/speed/update-cuda.json`, at 84 x 84 of `photographs-cuda.json`.
"""

import heapq
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImagePool
from semishot.paper import plan, published
from semishot.paper.requests import TableRequest
from semishot.training.config import SUPERVISED, FleetConfig
from speed_tables import markdown
from summarize import ROOT

SPLITS, GPUS = 10, (1, 8, 64)
SET_UP = 16.0 + 12.0
"""Seconds of a worker that are not updates: when Table 1 took 76 s, 16 of compiling and capturing and
12 of starting Python and evaluating all three fleets. Every fleet is charged with the whole of it."""
SIZES = (30, 15, 10, 8, 6, 5, 4, 3, 2, 1)


@cache
def measured(name: str) -> tuple[dict[str, EpisodeShape], dict[str, dict[int, float]]]:
    """By case: the episode that was timed, and µs per update of the whole fleet by its runs."""
    result = json.loads((ROOT / "results" / "speed" / f"{name}-cuda.json").read_text())
    shapes = {case: EpisodeShape(**s) for case, s in result["settings"]["episodes"].items()}
    times: dict[str, dict[int, float]] = {case: {} for case in shapes}
    for row in result["rows"]:
        if row["contender"] == "our fleet":
            times[row["case"]][row["runs"]] = row["runs"] * row["us_per_update_and_run"]
    return shapes, times


def microseconds(config: FleetConfig) -> float:
    """Per update of the whole fleet."""
    runs, shape = len(config.members), config.shape
    if config.dataset == "omniglot":
        times = measured("update")[1]
        refined = "masked, distractors" if shape.distractors else "masked"
        of_runs = times["supervised" if config.members[0].model == SUPERVISED else refined]
    else:  # 5-shot episodes are larger than any timed: a line through those that were
        shapes, times = measured("photographs")
        images = [shapes[case].images for case in times]
        of_runs = {
            size: float(
                np.polyval(np.polyfit(images, [t[size] for t in times.values()], 1), shape.images)
            )
            for size in times["supervised"]
        }
    most = max(of_runs)
    if runs > most:  # as if that were as good as it gets
        return of_runs[most] * runs / most
    return float(np.interp(runs, list(of_runs), list(of_runs.values())))


def fleets(name: str, fleet_size: int | None) -> list[FleetConfig]:
    """The plan of a table whose data are not needed for it."""
    table = published.TABLES[name]
    pool = ImagePool(table.dataset, np.empty((0, 1, 1, 1), np.uint8), ())
    request = TableRequest(splits=SPLITS, fleet_size=fleet_size)
    jobs = plan.table_jobs(table, request, pool, Path("nowhere"))
    return plan.configs_of(jobs)


def seconds(config: FleetConfig) -> float:
    return SET_UP + config.recipe.updates * microseconds(config) / 1e6


def makespan(tasks: Sequence[float], workers: int) -> float:
    """When the last ends: each worker that is free takes the largest that is left."""
    free = [0.0] * workers
    for task in sorted(tasks, reverse=True):
        heapq.heapreplace(free, free[0] + task)
    return max(free)


def best_size(names: Sequence[str], gpus: int) -> tuple[float, int]:
    """The least time over --fleet-size, and the largest size that has it."""
    found = [
        (makespan([seconds(c) for n in names for c in fleets(n, size)], gpus), -size)
        for size in SIZES
    ]
    time, size = min(found)
    return time, -size


def clock(value: float) -> str:
    return f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} min"


def main() -> None:
    wanted = {name: [name] for name in published.TABLES} | {"all three": list(published.TABLES)}
    rows = []
    for label, names in wanted.items():
        whole = [config for name in names for config in fleets(name, None)]
        runs = sum(len(config.members) for config in whole)
        row = [label, str(len(whole)), str(runs)]
        for gpus in GPUS:
            least, size = best_size(names, gpus)
            row += [clock(makespan([seconds(c) for c in whole], gpus)), f"{clock(least)} ({size})"]
        rows.append(row)
    head = ["projected, not measured", "fleets", "runs"]
    for gpus in GPUS:
        head += [f"{gpus} H200", "split (--fleet-size)"]
    print(markdown(head, rows))


if __name__ == "__main__":
    main()
