"""`make chaos`: real commands, killed with SIGKILL at random instants and run again until they finish.

Each round starts a command in a new folder and kills it at an instant drawn uniformly from the time it
takes undisturbed, again and again until it finishes. Every file in the folder, and what it printed, must
then be as without kills, except for TIMES. Commands run in forks of an interpreter with everything
imported, with more checkpoints and shorter work than usual. To add a command, add an entry to COMMANDS.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from semishot.system.files import TEMPORARY

SLOWEST = 120
"""Seconds after which a command hangs."""
MOST_KILLS = 8
"""Of a round: a machine so busy that hardly anything gets through should still see some finish."""
TIMES = (
    re.compile(rb'"(seconds|date)": [^,\n]+'),  # of records
    re.compile(rb'"seconds_by_part": \{[^}]*\}'),
    re.compile(rb"<dt>(wall time|training of a fleet)</dt><dd>[^<]*"),  # in the report
    re.compile(rb'"pile": "[^"]+"'),  # of a journal, which names the folder of its round
    re.compile(rb"the newest of [\d-]+|<dt>date</dt><dd>[^<]*"),
)
"""All that may differ between two undisturbed runs: how long they took, and when."""


@dataclass(frozen=True)
class Command:
    arguments: tuple[str, ...]
    """With SHARED for the folder that `make_shared` has filled; nothing below it is written."""
    before: Callable[[Path, Path], None] = lambda shared, folder: None
    """Lays what the command finds into its folder."""
    says_how: bool = False
    """Whether it says how it went on: what it prints is not compared then."""


def older_pool(shared: Path, folder: Path) -> None:
    """A pool of what the source held before, which the command replaces."""
    import numpy as np

    from semishot.data.pool import ImageClass, save_pool

    classes = [ImageClass(split, "old", split, i, 1) for i, split in enumerate(("train", "test"))]
    images = np.zeros((2, 1, 28, 28), np.uint8)
    about = {"source": str((shared / "images").resolve())}
    save_pool(folder / "data" / "folder", "folder", images, classes, about)


def own_pile(shared: Path, folder: Path) -> None:
    shutil.copytree(shared / "own" / "pile", folder / "pile")


def sorted_pile(shared: Path, folder: Path) -> None:
    """A pile that was moved, and two files that its user has moved on since."""
    own_pile(shared, folder)
    assert attempt(COMMANDS["classify --apply move"], shared, folder)
    here = folder / "out" / "sorted"
    for name in ("circle-0.png", "circle-1.png"):
        (here / "circle" / name).rename(here / "cross" / name)


DATA = ("--dataset", "glyphs", "--data-root", "SHARED/data", "--device", "cpu")
GLYPHS = (*DATA, "--preset", "demo")
TRAIN = ("--filters", "4", "--updates", "60", "--split-seeds", "0", "1", "--distractors", "2")
PRETRAINED = ("--features", "pretrained", "--splits", "2", "--updates", "20")
TABLE = ("--models", "supervised", "masked_soft_kmeans", "--shots", "1", "--splits", "1")
LABELED = (
    *("--labeled", "SHARED/own/labeled", "--out", "out"),
    *("--encoder", "omniglot", "--device", "cpu"),
)


def sort(how: str, prepare: Callable[[Path, Path], None]) -> Command:
    words = ("classify", *LABELED, "--unlabeled", "pile", "--apply", how)
    return Command(words, prepare, says_how=True)


COMMANDS = {
    "train": Command(("train", *GLYPHS, *TRAIN)),
    "reproduce": Command(
        ("reproduce", "table1", *GLYPHS, *TABLE, "--updates", "15", "--publish", "published")
    ),
    "reproduce table5": Command(("reproduce", "table5", *DATA, *PRETRAINED)),
    "data prepare": Command(
        ("data", "prepare", "folder", "--source", "SHARED/images", "--data-root", "data"),
        older_pool,
    ),
    "classify": Command(("classify", *LABELED, "--unlabeled", "SHARED/own/pile")),
    "classify --apply move": sort("move", own_pile),
    "classify --apply move again": sort("move", sorted_pile),
    "classify --apply copy": sort("copy", own_pile),
    "classify --apply link": sort("link", own_pile),
    "export": Command(("export", "SHARED/classifier.safetensors", "--out", "model.onnx")),
}


def make_shared(shared: Path) -> None:
    """A small pool of glyphs, larger pictures of them as a tree of image files, and drawings to sort,
    with the model that comes of it."""
    from PIL import Image

    from semishot.data.pool import save_pool
    from semishot.datasets import glyphs
    from support.own_images import folders

    images, classes = glyphs.draw(alphabets=7)
    save_pool(shared / "data" / "glyphs", "glyphs", images, classes, {})
    for each in classes[::8]:
        folder = shared / "images" / each.group / each.name
        folder.mkdir(parents=True)
        for place in range(each.start, each.start + each.count):
            picture = Image.fromarray(images[place, 0]).convert("RGB").resize((240, 240))
            picture.save(folder / f"{place}.jpg")
    folders(shared / "own", pile=14, strangers=14)
    undisturbed("classify", shared, shared / "classified")
    made = shared / "classified" / "out" / "model" / "classifier.safetensors"
    made.rename(shared / made.name)


def import_all(device: str = "cpu") -> None:
    """What commands import when they run, and smaller pieces of work between two writes."""
    import onnxruntime  # noqa: F401
    import torch

    from semishot.training import loop

    loop.CHUNK = loop.CPU_CHUNK = 5
    loop.CHECKPOINT_SECONDS = 0.0  # before it becomes the default of settings
    from semishot.commands import main  # noqa: F401
    from semishot.data import pool_builder
    from semishot.datasets import folder  # noqa: F401
    from semishot.paper import reproduce, table5  # noqa: F401
    from semishot.report import page, results_page  # noqa: F401
    from semishot.sorter import classify, embedding_cache, export  # noqa: F401
    from semishot.training import classification, evaluation  # noqa: F401

    torch.set_num_threads(1)
    if device == "cpu":  # its own imports are slow; it looks for a GPU, lost to children then
        torch.optim.Adam([torch.zeros(1, requires_grad=True)]).step()
    classification.AUTHORS_RECIPE = replace(classification.AUTHORS_RECIPE, filters=8)
    table5.EPISODES = 30
    pool_builder.BATCH = 16
    embedding_cache.MOST_ROWS = 8
    embedding_cache.MOST_SECONDS = math.inf  # else a slow run would cut its segments otherwise


def start(
    command: Command, shared: Path, folder: Path, prepare: Callable[[], object] = lambda: None
) -> int:
    """The process of the command, at work in `folder` after `prepare`; it prints into files beside it."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        for place, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{folder}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), place)
        os.chdir(folder)
        prepare()
        sys.modules["semishot.commands.main"].main(
            [argument.replace("SHARED", str(shared)) for argument in command.arguments]
        )
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(child: int, seconds: float) -> int | None:
    """The child's exit code, negative for a signal, or None if it still runs after so long."""
    until = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(0.001)


def attempt(command: Command, shared: Path, folder: Path, kill_after: float = SLOWEST) -> bool:
    """Run the command in its folder: whether it finished before it was killed."""
    child = start(command, shared, folder)
    code = wait(child, kill_after)
    if code is None:
        os.kill(child, signal.SIGKILL)
        code = wait(child, SLOWEST)
    said = Path(f"{folder}.err").read_text()
    assert code in (0, -signal.SIGKILL), f"exit code {code} in {folder}:\n{said}"
    assert kill_after < SLOWEST or code == 0, f"it hangs in {folder}:\n{said}"
    return code == 0


def is_of_sessions(path: Path) -> bool:
    """Whether a file has an entry for each process that trained, which a kill adds to."""
    return path.name == "training.json" or path.match("pretrained-classifiers/*.json")


def labels_in(out: Path) -> list[tuple[str, str | None]]:
    """What the store of OUT says of each image."""
    from semishot.sorter.labels import open_store

    with closing(open_store(out)) as store:
        return sorted((digest.hex(), store.label_of(digest)) for digest in store.images)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below the folder, hidden ones too, and what was printed, without times and its name.

    But for temporary files of killed processes, which are swept a day later.

    Of labels.sqlite, which has a random name and times, the label of each image.
    """
    files = {
        str(p.relative_to(folder)): p
        for p in sorted(folder.rglob("*"))
        if p.is_file() and not is_of_sessions(p) and not p.name.startswith("labels.sqlite")
        if not TEMPORARY.fullmatch(p.name)
    }
    read = {name: path.read_bytes() for name, path in files.items()}
    links = {
        name: os.fsencode(path.readlink()) for name, path in files.items() if path.is_symlink()
    }
    read |= {name: b"link to %b\n%b" % (target, read[name]) for name, target in links.items()}
    for path in folder.rglob("labels.sqlite"):
        read[str(path.relative_to(folder))] = json.dumps(labels_in(path.parent)).encode()
    read["(stdout)"] = Path(f"{folder}.out").read_bytes()
    read = {name: content.replace(os.fsencode(folder), b"") for name, content in read.items()}
    for pattern in TIMES:
        read = {name: pattern.sub(b"", content) for name, content in read.items()}
    return read


def differences(found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    names = sorted(found.keys() | expected.keys())
    return [name for name in names if found.get(name) != expected.get(name)]


def undisturbed(name: str, shared: Path, folder: Path) -> float:
    """Run a command in peace; the seconds it took."""
    folder.mkdir(parents=True)
    COMMANDS[name].before(shared, folder)
    begun = time.monotonic()
    attempt(COMMANDS[name], shared, folder)
    return time.monotonic() - begun


def a_round(name: str, shared: Path, work: Path, seed: int, seconds: float) -> int:
    """Kill and start again until it finishes, at last in peace; the kills it survived."""
    command, draw, folder = COMMANDS[name], random.Random(seed), work / f"round-{seed}"
    folder.mkdir()
    command.before(shared, folder)
    kills = 0
    while not attempt(
        command, shared, folder, draw.uniform(0, seconds) if kills < MOST_KILLS else SLOWEST
    ):
        kills += 1
    changed = differences(contents(folder), contents(work / "whole"))
    if command.says_how:
        changed = [file for file in changed if file != "(stdout)"]
    assert not changed, f"{name}, seed {seed}: {', '.join(changed)} differ in {folder}"
    return kills


def rounds(name: str, shared: Path, work: Path, kills: int, seed: int, lanes: int) -> str:
    """Rounds until a command has survived so many kills; a line about them."""
    seconds = undisturbed(name, shared, work / "whole")
    begun, survived, played = time.monotonic(), 0, 0
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(lanes, mp_context=context) as pool:
        for first in count(seed, lanes):
            seeds = range(first, first + lanes)
            done = [pool.submit(a_round, name, shared, work, s, seconds) for s in seeds]
            survived += sum(each.result() for each in done)
            played += lanes
            if survived >= kills:
                break
    took = time.monotonic() - begun
    files = len(contents(work / "whole"))
    return (
        f"{name}: {survived} kills survived in {played} rounds, {files} files as undisturbed "
        f"({seconds:.1f} s undisturbed, {took:.0f} s of chaos)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill commands and compare what they leave.")
    parser.add_argument("--kills", type=int, default=200, help="over all commands together")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--lanes", type=int, default=os.cpu_count() or 1, help="rounds at a time")
    parser.add_argument("--only", choices=COMMANDS, nargs="+", help="these commands alone")
    parser.add_argument("--device", default="cpu", help="where commands compute")
    options = parser.parse_args()
    for name, command in COMMANDS.items():
        placed = (options.device if each == "cpu" else each for each in command.arguments)
        COMMANDS[name] = replace(command, arguments=tuple(placed))
    print(f"seed {options.seed}", flush=True)
    import_all(options.device)
    chosen = options.only or list(COMMANDS)
    work = Path(tempfile.mkdtemp(prefix="chaos-"))
    make_shared(work / "shared")
    for name in chosen:
        own, kills = work / name.replace(" ", "-"), math.ceil(options.kills / len(chosen))
        print(rounds(name, work / "shared", own, kills, options.seed, options.lanes), flush=True)
    shutil.rmtree(work)  # what a failed round has left stays for a look


if __name__ == "__main__":
    main()
