"""Commands for a user's own images: `sample`, `classify`, `label`, `predict`, `audit`, `export`, `undo`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import tyro

from semishot.commands.exit_codes import REFUSED
from semishot.commands.flags import Flags, Json
from semishot.errors import printable
from semishot.label import LabelRequest
from semishot.sorter.requests import ClassifyRequest, PredictRequest


def sample(folder: tyro.conf.Positional[Path]) -> None:
    """Draw 200 small pictures of six kinds and of other things, to try `classify` and `label` with.

    Args:
        folder: A new folder for labeled/KIND, pile, and truth.csv, which says what each picture shows.
    """
    from semishot.sorter.sample import write_sample

    print("\n".join(write_sample(folder)))


def classify(request: Flags[ClassifyRequest], as_json: Json = False) -> None:
    """Sort a pile of images by a few labeled ones: predictions, a page to look at, a saved model."""
    from semishot.sorter.classify import classify

    done = classify(request)
    print(json.dumps(done.as_json(), indent=1) if as_json else "\n".join(done.lines()))
    if (failure := done.failure()) is not None:
        print(f"semishot: {printable(failure)}", file=sys.stderr)
        sys.exit(REFUSED)


def label(request: tyro.conf.PositionalRequiredArgs[Flags[LabelRequest]]) -> None:
    """Label a pile of images in the browser: click a few, and semishot sorts the rest."""
    from semishot.label.server import label

    label(request)


def predict(
    request: tyro.conf.PositionalRequiredArgs[Flags[PredictRequest]],
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    as_json: Json = False,
) -> None:
    """Predict the classes of new images with a model saved by `semishot classify`. Prints a CSV.

    Args:
        out: Write the CSV, or the JSON, to this file instead.
    """
    from semishot.sorter import predictions
    from semishot.sorter.predict import predict

    found, skipped = predict(request)
    for one in skipped:
        print(f"skipped {printable(one.shown)}: {printable(one.reason)}", file=sys.stderr)
    text = predictions.as_json(found) if as_json else predictions.as_csv(found)
    if out is not None:
        predictions.write_text(out, text)
        print(out)
        return
    if sys.stdout.isatty():  # a name may contain terminal escape sequences
        text = "\n".join(map(printable, text.split("\n")))
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode())


def audit(
    out: tyro.conf.Positional[Path],
    images: int = 60,
    again: bool = False,
    as_json: Json = False,
) -> None:
    """Bound how much of a sorted pile is right: look at a random sample, and say which are right.

    Args:
        out: The --out of `semishot classify`. OUT/audit.csv lists the images to look at: write right, wrong
            or the right class into its column correct, and run this again.
        images: How many to look at in all. You may stop at any moment; more give a better bound.
        again: Begin a new audit, of the decisions as they are now.
    """
    from semishot.sorter.audit import audit

    result, rows = audit(out, images, again)
    if as_json:
        print(json.dumps({**result.as_json(), "to_look_at": rows}, indent=1))
        return
    print("\n".join(result.lines()))
    if rows:
        print(
            f"{len(rows):,} images to look at are in {printable(str(out / 'audit.csv'))}: write right, "
            "wrong or the right class into its column correct, and run this again. Or see them one by one: "
            f"`semishot label PILE --out {printable(str(out))}`, Check."
        )


def undo(out: tyro.conf.Positional[Path], below: Path | None = None) -> None:
    """Undo `semishot classify --apply`: move files back, or remove copies or links.

    Args:
        out: The --out of that command.
        below: The folder that the files belong in, if the pile is not where it was: files are put back
            only there.
    """
    from semishot.sorter.moving.journal import JOURNAL
    from semishot.sorter.moving.move_files import undo
    from semishot.sorter.summary import named

    undone = undo(out, below)
    print(undone.undone())
    for line in named("not undone", undone.problems):
        print(line, file=sys.stderr)
    if undone.problems:
        print(
            f"semishot: {len(undone.problems):,} of {undone.count + len(undone.problems):,} could not be "
            f"undone; to undo one that you moved, put it back first; to leave them, delete "
            f"{printable(str(out / JOURNAL))}",
            file=sys.stderr,
        )
        sys.exit(REFUSED)


def export(
    model: tyro.conf.Positional[Path],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("model.onnx"),
) -> None:
    """Write a saved model as one ONNX file, compared with the classifier before it is written.

    Args:
        model: OUT/model of `semishot classify`, or OUT; or a file that PrototypeClassifier.save wrote.
        out: The file, ending in .onnx.
    """
    from semishot.sorter.export import export

    print(export(model, out))
