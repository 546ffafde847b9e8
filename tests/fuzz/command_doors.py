"""The doors of the command line, and of names: of files, folders and classes."""

import csv
import io
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import numpy as np
from doors import Door
from model_doors import RESULTS, home, rows
from mutations import odd_words

from semishot.commands.main import main
from semishot.errors import InputError
from semishot.paper import presets
from semishot.sorter.listing import Skipped, from_folders
from semishot.sorter.moving import move_files
from semishot.sorter.moving.move_files import Undone
from semishot.sorter.moving.plan_files import Wanted, plan
from semishot.sorter.page import PilePage, write_page
from semishot.sorter.predictions import (
    Decision,
    Prediction,
    as_csv,
    write_skipped,
    write_text,
)
from semishot.training.config import Recipe

WORK_SECONDS = 4
"""What a training that was asked for may take before it is stopped as by Ctrl-C."""
STOPPED = 130
TINY = presets.Preset("a test's", Recipe(updates=2, filters=2, labeled_fraction=0.6))
SMALL = "--way 2 --shot 1 --query 1 --unlabeled 1 --distractors 1"
COMMANDS = [
    "classify --labeled ##/rows.npy --labels ##/labels.csv --out ##/out --reject 0.1 --json",
    "classify --labeled ##/rows.npy --labels ##/labels.csv --unlabeled ##/rows.npy --out ##/out",
    "classify --labeled ##/labeled --unlabeled ##/pile --out ##/out --encoder @@/run#0 --apply copy",
    "predict @@/features ##/rows.npy --out ##/said.csv --json",
    "predict @@/features ##/rows.npy ##/rows.npy --device cpu",
    "undo ##/out --below ##/pile",
    "export @@/features --out ##/model.onnx",
    f"train --preset tiny --updates 1 --filters 2 --labeled-fraction 0.6 --runs ##/runs {SMALL}",
    f"train --model basic --preset tiny --split-seeds 0 1 --out ##/run --device cpu {SMALL}",
    f"train --preset tiny --options mask_power 2 --runs ##/runs {SMALL}",
    f"evaluate --model @@/run --split test --episodes 3 --json {SMALL}",
    f"evaluate --model @@/run --refiner soft_kmeans --split val --episodes 3 {SMALL}",
    f"pick @@/run ##/best.safetensors --model soft_kmeans {SMALL}",
    "results --folder ##/results --out ##/docs/results.md",
    "report ##/results --out ##/report.html --episodes 0",
    f"show episode --model @@/run --seed 1 --episode 2 --run 0 --out ##/a.png {SMALL}",
    f"show refinement --model @@/run --out ##/b.svg {SMALL}",
    "reproduce table1 --dataset glyphs --preset ren2018 --finished --runs ##/runs --splits 2 --shots 1",
    "reproduce ablations --dataset glyphs --only filters --splits 1 --runs ##/runs",
    f"reproduce figure-masks --model @@/run --splits 1 --runs ##/runs --out ##/c.png {SMALL}",
    "data prepare folder --source ##/pile --data-root ##/root",
    "data prepare omniglot --source ##/labeled --splits train,test --partial",
    "data prepare mini-imagenet --source ##/labeled --splits train",
    "data prepare tiered-imagenet --source ##/labeled --partial",
    "data verify glyphs",
    "data list --json",
    "doctor --json",
    "--version",
]


def commands() -> Sequence[bytes]:
    return [line.replace(" ", "\0").encode() for line in COMMANDS]


def surroundings() -> None:
    """The small pool stands where the glyphs would."""
    os.environ["SEMISHOT_DATA"] = str(home())
    presets.PRESETS["tiny"] = TINY
    save_features_model()


@cache
def save_features_model() -> None:
    saved = home() / "features"
    saved.mkdir()
    shutil.copy(home() / "strings.safetensors", saved / "classifier.safetensors")
    (saved / "encoder.json").write_text('{"format": 1, "encoder": "features"}')


def furnish(folder: Path) -> None:
    np.save(folder / "rows.npy", rows())
    (folder / "labels.csv").write_text("label\n" + 'a\nb\n""\n' * 4)
    (folder / "results/omniglot").mkdir(parents=True)
    shutil.copy(RESULTS / "omniglot/table1-ren2018.json", folder / "results/omniglot")
    for place in ("labeled/a", "labeled/b", "pile"):
        (folder / place).mkdir(parents=True)
        image = np.full((20, 20), len(place), np.uint8)
        np.save(folder / place / "no-image.npy", image)
        (folder / place / "1.pgm").write_bytes(b"P5 20 20 255\n" + image.tobytes())


def run_command(data: bytes, folder: Path) -> None:
    """In this process; what it prints goes through the encoding of a pipe."""
    surroundings()
    furnish(folder)
    words = [word.decode("utf-8", "surrogateescape") for word in data.split(b"\0")]
    words = [w.replace("@@", str(home())).replace("##", str(folder)) for w in words]
    out, err = (
        io.TextIOWrapper(io.BytesIO(), "utf-8", errors) for errors in ("strict", "backslashreplace")
    )
    code: object = 0
    with inside(folder), stopped_after(WORK_SECONDS), redirect_stdout(out), redirect_stderr(err):
        try:
            main(words)
            sys.stdout.flush()
        except SystemExit as end:
            code = end.code or 0
    err.flush()
    check_ending(code, err.buffer.getvalue().decode())


def check_ending(code: object, said: str) -> None:
    """Success, or one line and an exit code; what tyro says of an argument stands in a box."""
    assert "Traceback" not in said, said
    if code in (0, STOPPED):
        return
    assert code in (1, 2), f"exit code {code}"
    last = said.rstrip("\n").split("\n")[-1]
    assert last.startswith(("semishot: ", "╰")), f"exit code {code}, but said {said[-300:]!r}"
    raise InputError(last)


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def stopped_after(seconds: int) -> Iterator[None]:
    """As by Ctrl-C: a training of a million updates is no hang."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def names() -> Sequence[bytes]:
    return [
        b"cat\0dog\0a.png\0b.png\0c.jpg\0d e.gif",
        b"\xff\xfe\0x\0\xe9.png\0=1.png\0-rf.png\0'q'.png",
    ]


def use_names(data: bytes, folder: Path) -> None:
    """Two classes and some files so named: listed, written down, sorted, put back."""
    first, second, *files = [w.decode("utf-8", "surrogateescape") for w in data.split(b"\0")] + [
        ""
    ] * 2
    pile = folder / "pile"
    pile.mkdir()
    made = {path for name in files if (path := write_file(pile, name))}
    listing = from_folders(None, [pile])
    shown = [
        Prediction(item, label, 0.9, other, None, how)
        for item, (label, other, how) in zip(
            listing.items,
            [(first, second, Decision.ACCEPT), (second, first, Decision.STRANGER)] * 99,
            strict=False,
        )
    ]
    out = folder / "out"
    write_text(out / "predictions.csv", as_csv(shown))
    check_no_formula((out / "predictions.csv").read_text(encoding="utf-8"))
    write_skipped(out / "skipped.csv", [Skipped(name, first) for name in files])
    classes: dict[str, list[bytes]] = {first: [], second: []}
    write_page(out / "page.html", PilePage(shown, classes, [], lambda item: None, {first: second}))
    page = (out / "page.html").read_text(encoding="utf-8").lower()
    assert page.count("<script") == 1, "a script in the page"
    wanted = [Wanted(p.item.path, p.label, DIGEST) for p in shown if p.item.path]
    before = {p.name for p in folder.iterdir()} | {p.name for p in pile.iterdir()}
    move_files.complete(move_files.begin(plan(out, "move", wanted)))
    inside_sorted = [p.parent.parent for p in (out / "sorted").glob("*/*")]
    assert all(p == out / "sorted" for p in inside_sorted), "outside of its folder"
    assert len(inside_sorted) == len(wanted), "not all were sorted"
    assert move_files.undo(out) == Undone("move", len(wanted), [])
    assert {p.name for p in folder.iterdir()} | {p.name for p in pile.iterdir()} == before
    assert len(made) == len(list(pile.iterdir()))


DIGEST = "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
"""Of one byte, 0."""


def write_file(folder: Path, name: str) -> Path | None:
    """A file so named, if a file can be; folders are for other tests."""
    if "/" in name or name in ("", ".", "..") or name.startswith("."):
        return None
    path = folder / name
    try:
        path.write_bytes(b"\0")
    except (OSError, ValueError):
        return None
    return path


def check_no_formula(text: str) -> None:
    for row in list(csv.reader(io.StringIO(text)))[1:]:
        assert not any(cell[:1] in ("=", "+", "-", "@", "\t", "\r") for cell in row if cell), row


COMMAND_DOORS = [
    Door("command lines", commands, run_command, odd_words),
    Door("names", names, use_names, odd_words),
]
