"""Run by test_faults.py: commands that meet a full disk, a locked folder, a signal or each other.

Prints one JSON object: for each fault, how the disturbed command ended and what it said and left, and
in what the folder differs from an undisturbed one after the same command was run again in peace.
"""

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from support import chaos
from support.privileges import without_root

WORK = Path(sys.argv[1])
SHARED = WORK / "shared"


def small_files_only() -> None:
    """As on a full disk: no file may grow beyond this."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))


def interruptible() -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have switched it off


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


def forbidden(name: str) -> dict[str, object]:
    folder = fresh(name, "forbidden")
    inside = [folder, *(p for p in folder.rglob("*") if p.is_dir())]
    for each in inside:
        each.chmod(0o555)
    child = chaos.start(chaos.COMMANDS[name], SHARED, folder, without_root)
    code = chaos.wait(child, chaos.SLOWEST)
    for each in inside:
        each.chmod(0o755)
    return report(name, folder, code)


def stopped(name: str, number: signal.Signals, begun: Callable[[Path], bool]) -> dict[str, object]:
    """A signal to the command and all its workers, as a terminal sends it."""
    folder = fresh(name, number.name)
    child = chaos.start(chaos.COMMANDS[name], SHARED, folder, interruptible)
    while not begun(folder):
        time.sleep(0.001)
    os.killpg(child, number)
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


def one_cache() -> list[str]:
    """Two that sort one pile to folders of their own: what is not as one of them alone leaves it."""
    name, cache, differs = "classify", WORK / "cache", []
    command = chaos.COMMANDS[name]
    command = replace(command, arguments=(*command.arguments, "--cache", str(cache)))
    folders = [fresh(name, label) for label in ("one", "other")]
    children = [chaos.start(command, SHARED, folder) for folder in folders]
    assert [chaos.wait(child, chaos.SLOWEST) for child in children] == [0, 0]
    kept = {f"out/embeddings/{p.relative_to(cache)}": p for p in cache.rglob("*") if p.is_file()}
    for folder in folders:
        found = chaos.contents(folder) | {file: path.read_bytes() for file, path in kept.items()}
        differs += chaos.differences(found, chaos.contents(WORK / f"{name}-whole"))
    return differs


def has_begun(pattern: str) -> Callable[[Path], bool]:
    return lambda folder: any(path.stat().st_size for path in folder.glob(pattern))


BEGUN = {
    "train": has_begun("runs/*/*/*/state.pt"),
    "reproduce": has_begun("runs/*/*/*/state.pt"),
    "data prepare": has_begun("data/.folder.*.building/done.txt"),
    "classify": has_begun("out/embeddings/*/*.safetensors"),
}


def faults() -> Iterator[tuple[str, object]]:
    for name, begun in BEGUN.items():
        chaos.undisturbed(name, SHARED, WORK / f"{name}-whole".replace(" ", "-"))
        yield f"together: {name}", together(name)
        if name != "reproduce":  # which is `train`, several times
            yield f"full disk: {name}", full_disk(name)
            if name != "classify":  # whose folder is made before anything else
                yield f"forbidden: {name}", forbidden(name)
            yield f"SIGINT: {name}", stopped(name, signal.SIGINT, begun)
            yield f"SIGTERM: {name}", stopped(name, signal.SIGTERM, begun)
    yield "one cache", one_cache()
    moving = "classify --apply move"
    chaos.undisturbed(moving, SHARED, WORK / f"{moving}-whole".replace(" ", "-"))
    yield f"together: {moving}", together(moving)


if __name__ == "__main__":
    chaos.import_all()
    table = chaos.COMMANDS["reproduce"]
    one_fleet = tuple(a for a in table.arguments if a != "masked_soft_kmeans")
    chaos.COMMANDS["reproduce"] = replace(table, arguments=one_fleet)
    chaos.make_shared(SHARED)
    print(json.dumps(dict(faults()), indent=1))
