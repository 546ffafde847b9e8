"""Every place where a command looks, and the commands that look there, in worlds of `hostile_worlds`."""

from collections.abc import Sequence
from dataclasses import dataclass

GLYPHS = ("--dataset", "glyphs", "--data-root", "data", "--device", "cpu")
SMALL = ("--filters", "4", "--updates", "30", "--split-seeds", "0", "--distractors", "2")
CPU = ("--encoder", "omniglot", "--device", "cpu")
CLASSIFY = ("classify", "--labeled", "labeled", "--unlabeled", "pile", "--out", "out", *CPU)
FEATURES = ("classify", "--labeled", "rows.npy", "--unlabeled", "more.npy", "--out", "out")
TRAIN = ("train", *GLYPHS, "--preset", "demo", *SMALL)
EPISODE = ("--model", "run", "--data-root", "data", "--out", "a.png")
SHAPE = ("--way", "5", "--shot", "1", "--unlabeled", "2", "--distractors", "0")
TABLE = ("--models", "supervised", "--shots", "1", "--splits", "1", "--updates", "5")
DATABASES = ("labels", "thumbnails")
OF_A_RUN = tuple(
    f"{folder}/{name}"
    for folder in ("run", "half")
    for name in (
        "config.json",
        "log.jsonl",
        "model.safetensors",
        "state.pt",
        "state.before.pt",
        "training.json",
    )
)


@dataclass(frozen=True)
class Run:
    """A command, in one of the worlds."""

    world: str
    arguments: tuple[str, ...]
    slow: bool = False
    """It gets fewer of the cases."""
    served: bool = False
    """It serves until it is ended: one answer is given over HTTP first."""
    writes: tuple[str, ...] = ()
    """Names of its own files, beside those that it changes in peace."""
    moves: bool = False
    """It moves files between the pile and out/sorted."""


RUNS: dict[str, Run] = {
    "classify": Run("sorting", CLASSIFY),
    "cached": Run("sorting", (*CLASSIFY, "--cache", "cache")),
    "table": Run("sorting", ("classify", "--labeled", "labels.csv", "--out", "out", *CPU)),
    "corrected": Run(
        "sorting",
        ("classify", "--labeled", "out/predictions.csv", "--out", "out", *CPU),
    ),
    "answers": Run(
        "sorting",
        ("classify", "--labeled", "out/labels.sqlite", "--unlabeled", "pile", "--out", "out", *CPU),
        writes=tuple(f"out/labels.sqlite-{end}" for end in ("wal", "shm", "journal")),
    ),
    "features": Run("sorting", (*FEATURES, "--labels", "rows.csv")),
    "labels-npy": Run("sorting", (*FEATURES, "--labels", "labels.npy")),
    "copy": Run("sorting", (*CLASSIFY, "--apply", "copy")),
    "link": Run("sorting", (*CLASSIFY, "--apply", "link")),
    "move": Run("sorting", (*CLASSIFY, "--apply", "move"), moves=True),
    "move-again": Run("moved", (*CLASSIFY, "--apply", "move"), moves=True),
    "undo": Run("moved", ("undo", "out"), moves=True),
    "resume": Run("pending", (*CLASSIFY, "--apply", "move"), moves=True),
    "undo-pending": Run("pending", ("undo", "out"), moves=True),
    "label": Run(
        "sorting",
        ("label", "pile", "--labeled", "labeled", "--out", "out", *CPU, "--no-browser"),
        served=True,
        writes=(
            *(
                f"out/{name}.sqlite{end}"
                for name in DATABASES
                for end in ("", "-wal", "-shm", "-journal")
            ),
            *("out/.label-view", "out/labels.csv"),
        ),
    ),
    "predict": Run(
        "sorting", ("predict", "out/model", "pile", "--out", "p.csv", "--device", "cpu")
    ),
    "predict-cached": Run(
        "sorting", ("predict", "out", "pile/dots-0.png", "--cache", "cache", "--device", "cpu")
    ),
    "export": Run("sorting", ("export", "out/model", "--out", "model.onnx"), slow=True),
    "train": Run("training", (*TRAIN, "--out", "half"), writes=OF_A_RUN),
    "train-done": Run("training", (*TRAIN, "--out", "run"), writes=OF_A_RUN),
    "evaluate": Run(
        "training",
        (
            *("evaluate", "--model", "run", "--data-root", "data", "--device", "cpu"),
            *("--episodes", "5", *SHAPE),
        ),
    ),
    "pick": Run(
        "training",
        (
            *("pick", "run", "best.safetensors", "--data-root", "data", "--device", "cpu"),
            *SHAPE,
        ),
    ),
    "reproduce": Run(
        "training",
        ("reproduce", "table1", *GLYPHS, "--preset", "demo", *TABLE, "--publish", "published"),
    ),
    "results": Run("training", ("results", "--folder", "published", "--out", "docs/results.md")),
    "report": Run(
        "training", ("report", "published", "runs", "--data-root", "data", "--episodes", "1")
    ),
    "show-episode": Run("training", ("show", "episode", *EPISODE, *SHAPE)),
    "show-refinement": Run("training", ("show", "refinement", *EPISODE, *SHAPE)),
    "prepare": Run(
        "training",
        (
            *("data", "prepare", "folder", "--source", "source", "--name", "own"),
            *("--data-root", "data"),
        ),
    ),
    "verify": Run("training", ("data", "verify", "glyphs", "--data-root", "data")),
    "list": Run("training", ("data", "list", "--data-root", "data")),
    "doctor": Run("training", ("doctor", "--data-root", "data")),
}

SORTINGS = ("copy", "link", "move", "move-again", "resume", "undo", "undo-pending")
PLACES: dict[str, tuple[str, Sequence[str]]] = {
    "pile": ("folder", ("classify", "move", "label", "predict")),
    "pile/more": ("folder", ("classify", "copy", "move", "label", "predict", "undo")),
    "pile/dots-0.png": (
        "picture",
        ("classify", "copy", "link", "move", "label", "predict", "predict-cached"),
    ),
    "pile/more/circle-0.png": ("picture", ("table", "answers", "corrected", *SORTINGS)),
    "labeled": ("folder", ("classify", "label")),
    "labeled/circle": ("folder", ("classify", "move", "label")),
    "labeled/circle/0.png": ("picture", ("classify", "label", "table")),
    "labels.csv": ("file", ("table",)),
    "rows.npy": ("file", ("features",)),
    "more.npy": ("file", ("features",)),
    "rows.csv": ("file", ("features",)),
    "labels.npy": ("file", ("labels-npy",)),
    "out": (
        "folder",
        ("classify", "move", "label", "undo", "resume", "predict", "features", "predict-cached"),
    ),
    "out/predictions.csv": ("file", ("classify", "corrected", "features", "move-again")),
    "out/report.html": ("file", ("classify",)),
    "out/result.json": ("file", ("classify", "features")),
    "out/skipped.csv": ("file", ("classify",)),
    "out/.features.npy": ("file", ("classify", "features", "move")),
    "out/.lock": ("file", ("copy", "move", "undo", "resume", "classify")),
    "out/.label.lock": ("file", ("label",)),
    "out/undo.json": ("file", ("classify", "label", *SORTINGS)),
    "out/labels.sqlite": ("file", ("label", "answers")),
    "out/labels.sqlite-wal": ("file", ("label", "answers")),
    "out/labels.sqlite-shm": ("file", ("label", "answers")),
    "out/labels.sqlite-journal": ("file", ("label", "answers")),
    "out/.label-view": ("file", ("label",)),
    "out/.label-view.1.tmp": ("file", ("label",)),
    "out/thumbnails.sqlite": ("file", ("label",)),
    "out/thumbnails.sqlite-wal": ("file", ("label",)),
    "out/pictures": ("folder", ("classify", "move")),
    "out/pictures/*.jpg": ("file", ("classify",)),
    "out/pictures/.0.jpg.1.tmp": ("file", ("classify",)),
    "out/embeddings": ("folder", ("classify", "label")),
    "out/embeddings/*": ("folder", ("classify", "label")),
    "out/embeddings/*/*.safetensors": ("file", ("classify", "label")),
    "out/embeddings/*/.0.safetensors.1.tmp": ("file", ("classify", "label")),
    "out/model": ("folder", ("classify", "predict", "export")),
    "out/model/classifier.safetensors": ("file", ("classify", "predict", "export")),
    "out/model/encoder.json": ("file", ("classify", "predict", "export")),
    "out/.model.1.tmp": ("folder", ("classify", "features")),
    "out/.model.1.old": ("folder", ("classify", "features")),
    "out/.predictions.csv.1.tmp": ("file", ("classify", "move", "label")),
    "out/.predictions.csv.1.old": ("file", ("classify",)),
    "out/.result.json.1.tmp": ("file", ("classify",)),
    "out/.undo.json.1.tmp": ("file", SORTINGS),
    "out/sorted": ("folder", SORTINGS),
    "out/sorted/circle": ("folder", SORTINGS),
    "out/sorted/circle/circle-0.png": ("picture", SORTINGS),
    "out/sorted/circle/.semishot-0.part": ("file", SORTINGS),
    "out/sorted/circle/.circle-0.png.1.tmp": ("file", ("move", "undo")),
    "cache": ("folder", ("cached", "predict-cached")),
    "cache/*": ("folder", ("cached", "predict-cached")),
    "cache/*/*.safetensors": ("file", ("cached", "predict-cached")),
    "cache/*/.0.safetensors.1.tmp": ("file", ("cached", "predict-cached")),
    "p.csv": ("file", ("predict",)),
    ".p.csv.1.tmp": ("file", ("predict",)),
    ".p.csv.1.old": ("file", ("predict",)),
    "model.onnx": ("file", ("export",)),
    ".model.onnx.1.tmp": ("file", ("export",)),
    "home": ("folder", ("move", "undo")),
    "home/semishot": ("folder", ("move", "undo")),
    "home/semishot/seal.key": ("file", ("copy", "move", "resume", "undo")),
    "tmp": ("folder", ("predict", "prepare")),
    "run": ("folder", ("train-done", "evaluate", "pick", "show-episode")),
    "run/config.json": ("file", ("train-done", "evaluate", "pick", "show-refinement")),
    "run/model.safetensors": ("file", ("train-done", "evaluate", "pick", "show-episode")),
    "run/log.jsonl": ("file", ("train-done", "evaluate")),
    "run/.lock": ("file", ("train-done", "evaluate")),
    "half": ("folder", ("train",)),
    "half/config.json": ("file", ("train",)),
    "half/log.jsonl": ("file", ("train",)),
    "half/state.pt": ("file", ("train",)),
    "half/state.before.pt": ("file", ("train",)),
    "half/model.safetensors": ("file", ("train",)),
    "half/.lock": ("file", ("train",)),
    "half/.config.json.1.tmp": ("file", ("train",)),
    "half/.state.pt.1.tmp": ("file", ("train",)),
    "half/.model.safetensors.1.old": ("file", ("train",)),
    "runs": ("folder", ("reproduce", "report")),
    "runs/glyphs/demo": ("folder", ("reproduce", "report")),
    "runs/glyphs/demo/*": ("folder", ("reproduce", "report")),
    "runs/glyphs/demo/*/config.json": ("file", ("reproduce", "report")),
    "runs/glyphs/demo/*/model.safetensors": ("file", ("reproduce", "report")),
    "runs/glyphs/demo/*/result.json": ("file", ("reproduce", "report")),
    "runs/glyphs/demo/*/log.jsonl": ("file", ("reproduce", "report")),
    "runs/glyphs/demo/*/.result.json.1.tmp": ("file", ("reproduce",)),
    "runs/report.html": ("file", ("reproduce",)),
    "runs/.report.html.1.tmp": ("file", ("reproduce",)),
    "published": ("folder", ("results", "report", "reproduce")),
    "published/glyphs": ("folder", ("results", "report", "reproduce")),
    "published/glyphs/table1-demo-5.json": ("file", ("results", "report", "reproduce")),
    "published/glyphs/.table1-demo-5.json.1.tmp": ("file", ("reproduce",)),
    "published/glyphs/.table1-demo-5.json.lock": ("file", ("reproduce",)),
    "docs": ("folder", ("results",)),
    "docs/results.md": ("file", ("results",)),
    "docs/.results.md.1.tmp": ("file", ("results",)),
    "report.html": ("file", ("report",)),
    ".report.html.1.tmp": ("file", ("report",)),
    "a.png": ("file", ("show-episode", "show-refinement")),
    ".a.png.1.tmp": ("file", ("show-episode", "show-refinement")),
    "best.safetensors": ("file", ("pick",)),
    ".best.safetensors.1.tmp": ("file", ("pick",)),
    "data": ("folder", ("verify", "list", "doctor", "evaluate", "train", "prepare", "report")),
    "data/glyphs": (
        "folder",
        ("verify", "list", "doctor", "evaluate", "train", "reproduce", "report"),
    ),
    "data/glyphs/images.npy": ("file", ("verify", "list", "evaluate", "train", "show-episode")),
    "data/glyphs/pool.json": ("file", ("verify", "list", "doctor", "evaluate", "train", "report")),
    "data/own": ("folder", ("prepare", "list", "doctor")),
    "data/own/images.npy": ("file", ("prepare", "list")),
    "data/.own.building": ("folder", ("prepare", "list")),
    "data/.own.building/images.npy": ("file", ("prepare",)),
    "data/.own.building/done.txt": ("file", ("prepare",)),
    "data/.own.building/plan.txt": ("file", ("prepare",)),
    "data/.own.lock": ("file", ("prepare",)),
    "data/.own.1.tmp": ("folder", ("prepare", "list")),
    "data/.own.1.old": ("folder", ("prepare",)),
    "source": ("folder", ("prepare",)),
    "source/g0": ("folder", ("prepare",)),
    "source/g0/c0": ("folder", ("prepare",)),
    "source/g0/c0/0.png": ("picture", ("prepare",)),
}
"""What is expected there, and the commands; `*` is the first name that is there."""
BY_DEFAULT = ("runs", "home", "tmp", "published")
"""Folders that a command uses where its user names no others, or with folders of theirs for each data set."""


def named(place: str, command: str) -> bool:
    """Whether its user names the place, or a place below it: a link to a folder may well be meant then."""
    words = (*RUNS[command].arguments, "report.html")
    below = any(word == place or word.startswith(f"{place}/") for word in words)
    return below or place.startswith(BY_DEFAULT)
