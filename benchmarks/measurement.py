"""What every benchmark shares: its command line, timing in turns, and its result file."""

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from semishot.system.devices import device_name, pick_device
from semishot.system.files import write_json
from semishot.system.processes import keep_freed_memory
from semishot.training.run_folder import versions
from summarize import table

RESULTS = Path(__file__).parents[1] / "results" / "speed"
CPU = torch.device("cpu")

Rows = list[dict[str, Any]]
Measure = Callable[..., dict[str, Any]]
"""(device, quick) -> the result, a plain dict; further flags of the script by name."""


def time_in_turns(
    works: Mapping[Any, Callable[[], object]], device: torch.device, rounds: int, seconds: float
) -> dict[Any, float]:
    """Median seconds of each work. They take turns, so that a busy machine slows all of them alike.

    Each runs once as a warm-up. When `seconds` are over, no further round begins.
    """
    for work in works.values():
        work()
    taken: dict[Any, list[float]] = {name: [] for name in works}
    end = time.perf_counter() + seconds
    for _ in range(rounds):
        for name, work in works.items():
            wait(device)
            begun = time.perf_counter()
            work()
            wait(device)
            taken[name].append(time.perf_counter() - begun)
        if time.perf_counter() > end:
            break
    return {name: statistics.median(times) for name, times in taken.items()}


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def result(
    benchmark: str, device: torch.device, quick: bool, settings: dict[str, Any], rows: Rows
) -> dict[str, Any]:
    about = about_tasks(benchmark, device, device_type=device.type, quick=quick)
    return {**about, "settings": settings, "rows": rows}


def about_tasks(benchmark: str, device: torch.device = CPU, **more: Any) -> dict[str, Any]:
    """What a result file says of how it was made, and what is measured."""
    return {
        "benchmark": benchmark,
        "device": device_name(device),
        "processor": processor(),
        "versions": versions(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        **more,
    }


def processor() -> str:
    """The CPU's name where Linux tells it; it also drives the GPU."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.machine()


def command(name: str, measure: Measure, **flags: dict[str, Any]) -> None:
    """`python benchmarks/NAME.py`: measure, print the table, write the JSON.

    flags: what `add_argument` takes for each flag that only this script has.
    """
    about = sys.modules[measure.__module__].__doc__
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto")
    parser.add_argument("--out", type=Path, help=f"default: results/speed/{name}-DEVICE.json")
    parser.add_argument("--quick", action="store_true", help="tiny; writes only where --out says")
    for flag, described in flags.items():
        parser.add_argument(f"--{flag}", **described)
    given = parser.parse_args()
    keep_freed_memory()  # as the command does; every contender gains by it
    device = pick_device(given.device)
    found = measure(device, given.quick, **{flag: getattr(given, flag) for flag in flags})
    print(table(found))
    out = given.out or (None if given.quick else RESULTS / f"{name}-{found['device_type']}.json")
    if out is not None:
        write_json(out, found)
