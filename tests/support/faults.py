"""Run by test_faults.py: commands that meet a full disk or each other.

Prints one JSON object: for each fault, how the disturbed command ended and what it said and left, and
in what the folder differs from an undisturbed one after the same command was run again in peace.
"""

import json
import resource
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from support import chaos

WORK = Path(sys.argv[1])
SHARED = WORK / "shared"


def small_files_only() -> None:
    """As on a full disk: no file may grow beyond this."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))


def fresh(name: str, label: str) -> Path:
    folder = WORK / f"{name}-{label}".replace(" ", "-")
    folder.mkdir()
    chaos.COMMANDS[name].before(SHARED, folder)
    return folder


def report(name: str, folder: Path, code: int | None) -> dict[str, object]:
    """How it ended; then the same command once more."""
    found = {
        "code": code,
        "said": Path(f"{folder}.err").read_text(),
        "left": sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()),
    }
    chaos.attempt(chaos.COMMANDS[name], SHARED, folder)
    whole = chaos.contents(WORK / f"{name}-whole".replace(" ", "-"))
    return {**found, "differs": chaos.differences(chaos.contents(folder), whole)}


def full_disk(name: str) -> dict[str, object]:
    folder = fresh(name, "full")
    child = chaos.start(chaos.COMMANDS[name], SHARED, folder, small_files_only)
    return report(name, folder, chaos.wait(child, chaos.SLOWEST))


def together(name: str) -> dict[str, object]:
    """Two of the same command in the same folder."""
    folder, beside = fresh(name, "together"), WORK / f"{name}-beside".replace(" ", "-")
    first = chaos.start(chaos.COMMANDS[name], SHARED, folder)
    beside.symlink_to(folder)  # the same folder; what is printed goes beside the link
    second = chaos.start(chaos.COMMANDS[name], SHARED, beside)
    codes = [chaos.wait(child, chaos.SLOWEST) for child in (first, second)]
    said = [Path(f"{place}.err").read_text() for place in (folder, beside)]
    found = report(name, folder, max(code if code is not None else -1 for code in codes))
    return {**found, "pids": [first, second], "said": said}


def faults() -> Iterator[tuple[str, object]]:
    for name in ("train", "data prepare", "classify", "reproduce", "classify --apply move"):
        chaos.undisturbed(name, SHARED, WORK / f"{name}-whole".replace(" ", "-"))
        yield f"together: {name}", together(name)
    for name in ("train", "data prepare", "classify"):
        yield f"full disk: {name}", full_disk(name)


if __name__ == "__main__":
    chaos.import_all()
    table = chaos.COMMANDS["reproduce"]
    one_fleet = tuple(a for a in table.arguments if a != "masked_soft_kmeans")
    chaos.COMMANDS["reproduce"] = replace(table, arguments=one_fleet)
    chaos.make_shared(SHARED)
    print(json.dumps(dict(faults()), indent=1))
