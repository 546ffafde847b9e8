"""Two worlds, built once and copied for each case, and two that come of the first.

`sorting` is a person's pile with what `label` and `classify` have left, `training` a data root with runs and
published results. `moved` and `pending` are the first one after `--apply move`, and in the midst of it.
"""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from support import killing
from support.hostile_places import RUNS


def resolved(folder: Path, place: str) -> Path:
    """The place in this copy of a world."""
    here = folder
    for part in place.split("/"):
        found = sorted(here.glob(part)) if "*" in part else []
        here = found[0] if found else here / part.replace("*", "0")
    return here


Play = Callable[[str, Path], object]
"""Run a command of RUNS in a folder, in peace."""


def build(name: str, case: Path, worlds: Path, play: Play) -> None:
    """A world at `case`, where its copies will be too, for journals name their folders; kept in `worlds`."""
    worlds.mkdir(parents=True, exist_ok=True)
    if name == "sorting":
        build_sorting(case, play)
    elif name == "training":
        build_training(case, play)
    else:
        if not (worlds / "sorting").exists():
            build("sorting", case, worlds, play)
        shutil.copytree(worlds / "sorting", case, symlinks=True)
        if name == "moved":
            play("move", case)
        else:
            interrupt("move", case, "semishot.sorter.moving.move_files")
    case.rename(worlds / name)


def build_sorting(folder: Path, play: Play) -> None:
    import numpy as np

    from support.own_images import folders

    folders(folder, shots=2, pile=2, strangers=2)
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    rng = np.random.default_rng(0)
    kinds = np.arange(24) % 3
    rows = rng.normal(size=(24, 6)) + 4 * np.eye(3, 6)[kinds]
    np.save(folder / "rows.npy", rows.astype(np.float32))
    np.save(folder / "more.npy", rows.astype(np.float32) + 0.1)
    np.save(folder / "labels.npy", kinds)
    (folder / "rows.csv").write_text("label\n" + "".join(f"kind{k}\n" for k in kinds))
    named = [f"{p},{p.parent.name}\n" for p in sorted(folder.glob("labeled/*/*.png"))]
    named += [f"{p},\n" for p in sorted(folder.glob("pile/more/*.png"))]
    (folder / "labels.csv").write_text(
        "path,label\n" + "".join(named).replace(f"{folder}{os.sep}", "")
    )
    for name in ("cached", "label", "classify", "predict"):
        play(name, folder)
    (folder / "model.onnx").write_bytes(b"of an earlier export")
    (folder / "out" / "mine.txt").write_text("a user's own file\n")


def build_training(folder: Path, play: Play) -> None:
    from semishot.data.pool import save_pool
    from semishot.datasets import glyphs
    from support.own_images import draw, save

    images, classes = glyphs.draw(alphabets=7)
    save_pool(folder / "data" / "glyphs", "glyphs", images, classes, {})
    for name in ("home", "tmp", "docs"):
        (folder / name).mkdir()
    for group, kind in ((0, "circle"), (0, "cross"), (1, "stripes"), (1, "dots")):
        for number in range(3):
            c = 0 if kind in ("circle", "stripes") else 1
            save(draw(kind, number, 40), folder / f"source/g{group}/c{c}/{number}.png")
    for name in ("train-done", "reproduce", "results", "report", "show-episode", "pick", "prepare"):
        play(name, folder)
    interrupt("train", folder, "semishot.training.loop", "semishot.training.checkpoints")
    assert (folder / "half" / "state.pt").exists()


def interrupt(name: str, folder: Path, *modules: str) -> None:
    """Kill a command halfway through what these modules do."""
    watched = {str(sys.modules[module].__file__) for module in modules}
    before = folder.with_name("before")
    shutil.copytree(folder, before, symlinks=True)
    work = partial(quietly, RUNS[name].arguments, folder)
    events = killing.attempt(work, watched)
    assert events is not None
    shutil.rmtree(folder)
    before.rename(folder)
    assert killing.attempt(work, watched, events * 7 // 10) is None


def quietly(arguments: Sequence[str], folder: Path) -> None:
    os.chdir(folder)
    os.environ["XDG_DATA_HOME"] = str(folder / "home")
    for place in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), place)
    sys.modules["semishot.commands.main"].main(list(arguments))
