"""The commands for one's own images: `classify`, `predict`, `export` and `undo`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from semishot.errors import InputError, printable

Json = Annotated[bool, tyro.conf.arg(name="json")]


def classify(
    labeled: Path,
    out: Path,
    unlabeled: Path | None = None,
    labels: Path | None = None,
    encoder: str | None = None,
    reject: float = 0.05,
    apply: Literal["move", "copy", "link"] | None = None,
    cache: Path | None = None,
    device: str = "auto",
    engine: Literal["local", "ray"] | None = None,
    address: str | None = None,
    as_json: Json = False,
) -> None:
    """Sort a pile of images by a few labeled ones: predictions, a page to look at, a saved model.

    Args:
        labeled: A folder with one folder of images per class; or a .csv of path,label, where no label
            is unlabeled; or .npy features.
        out: The folder for predictions.csv, report.html, skipped.csv, result.json and the model.
        unlabeled: The folder of the pile, with folders in it or not; or .npy features.
        labels: Of .npy features: a .csv with the column label, or .npy; empty or -1 is unlabeled.
        encoder: photos (the default), omniglot for small line drawings, timm:NAME, or a folder left by
            `semishot train` (FOLDER#2 is its third run).
        reject: The share of true members that may be taken for irrelevant.
        apply: Sort the files too, into OUT/sorted/CLASS; `semishot undo OUT` undoes it.
        cache: Keep features here, for other runs too; by default in OUT/embeddings.
        device: auto, cpu, cuda or cuda:N.
        engine: local embeds on every GPU of this machine, or on its cores, a process each; ray on the
            machines of a Ray cluster.
        address: The Ray cluster's, such as 10.0.0.1:6379; else $RAY_ADDRESS, else a new one here.
        as_json: Print what was found as JSON.
    """
    from semishot.sorter.classify import classify
    from semishot.sorter.pile_report import as_lines

    done = classify(
        labeled, unlabeled, out, labels, encoder, reject, apply, cache, device, engine, address
    )
    if as_json:
        print(json.dumps({**done.facts, "problems": done.problems}, indent=1))
    else:
        print("\n".join(as_lines(done.out, done.facts, done.problems)))


def predict(
    model: tyro.conf.Positional[Path],
    images: tyro.conf.Positional[tuple[Path, ...]],
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    cache: Path | None = None,
    device: str = "auto",
    as_json: Json = False,
) -> None:
    """Say what new images are, by a model that `semishot classify` has saved. Prints a CSV.

    Args:
        model: OUT/model, or OUT.
        images: Image files, or folders of them; or .npy features, as the model was given.
        out: Write the CSV, or the JSON, to this file instead.
        cache: Keep features here, and use those that are.
        device: auto, cpu, cuda or cuda:N.
        as_json: JSON instead of CSV.
    """
    from semishot.sorter import predictions
    from semishot.sorter.predict import predict

    if not images:
        raise InputError("name the images, or a folder of them")
    found, skipped = predict(model, images, cache, device)
    for one in skipped:
        print(f"skipped {printable(one.shown)}: {printable(one.reason)}", file=sys.stderr)
    text = predictions.as_csv(found)
    if as_json:
        text = json.dumps(predictions.as_json(found), indent=1) + "\n"
    if out is None:
        if sys.stdout.isatty():  # a name may hold what a terminal would obey
            text = "\n".join(map(printable, text.split("\n")))
        sys.stdout.write(text.encode("utf-8", "backslashreplace").decode())
    else:
        predictions.write_text(out, text)
        print(out)


def undo(out: tyro.conf.Positional[Path], below: Path | None = None) -> None:
    """Put the files back that `semishot classify --apply` has sorted.

    Args:
        out: The --out of that command.
        below: The folder the files came from, if they were sorted on another machine or by somebody
            else: none is put anywhere else.
    """
    from semishot.sorter.journal import JOURNAL
    from semishot.sorter.move_files import undo

    count, problems = undo(out, below)
    for problem in problems:
        print(f"not undone: {printable(problem)}", file=sys.stderr)
    if problems:
        raise InputError(
            f"{len(problems)} of {count + len(problems)} files are not as they were left; see to them and "
            f"undo again, or delete {out / JOURNAL} to leave them"
        )
    print(f"{count:,} files put back")


def export(
    model: tyro.conf.Positional[Path],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("model.onnx"),
) -> None:
    """Write a saved model as one ONNX file, tried beside torch before it appears.

    Args:
        model: OUT/model of `semishot classify`, or OUT; or a file that PrototypeClassifier.save wrote.
        out: The file, ending in .onnx.
    """
    from semishot.sorter.export import export

    print(export(model, out))


OWN_IMAGE_COMMANDS: dict[str, Callable[..., Any]] = {
    "classify": classify,
    "predict": predict,
    "export": export,
    "undo": undo,
}
