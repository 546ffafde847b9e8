"""A few labeled images and a pile -> the class of each image, a report, a saved model, sorted files.

What learns is imported when there is something to learn: what is wrong with a request is said at once.
"""

import json
import time
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from semishot.errors import InputError
from semishot.sorter.labeled_images import check_read, labeled_images
from semishot.sorter.moving.journal import (
    JOURNAL,
    Sorting,
    read_journal,
    undo_command,
    write_journal,
)
from semishot.sorter.moving.move_files import LOCK, Wanted, complete, is_linked, plan
from semishot.sorter.out_folder import (
    PREDICTIONS,
    REPORT,
    RESULT,
    SCRATCH,
    SKIPPED,
    check_out,
    make_out,
    write_saved_model,
)
from semishot.sorter.predictions import as_csv, csv_table, write_text
from semishot.sorter.requests import ClassifyRequest
from semishot.sorter.summary import Classified, summarize
from semishot.system.locks import Lock
from semishot.system.processes import note_left
from semishot.system.progress import Seconds, doing

if TYPE_CHECKING:
    from semishot.sorter.learning import FittedPile


def classify(request: ClassifyRequest) -> Classified:
    """Learn from the labeled images and the pile; write predictions, a page and the model to `out`."""
    out = request.out
    _check(request)
    if request.with_features:
        note_left("run it again")
    is_new = not out.exists()
    make_out(out)
    try:
        with Lock(out / LOCK):
            return _alone(request)
    except InputError:
        if is_new:
            with suppress(OSError):  # it holds skipped.csv, which says what is wrong
                out.rmdir()
        raise


def _check(request: ClassifyRequest) -> None:
    """Check the request before anything is read."""
    features, reject = request.with_features, request.reject
    if isinstance(reject, float) and not 0 < reject < 1:
        raise InputError(f"--reject must be auto or between 0 and 1, not {reject}")
    if features and (request.apply or request.encoder):
        raise InputError(
            "features have no files to sort and are embedded already: drop --apply and --encoder"
        )
    if request.labeled is None and request.names is None:
        raise InputError("pass --labeled, or --names of classes")
    if features and request.names is not None:
        raise InputError("--names need images: in Python, fit(X, y, class_features=...)")
    if features and request.labels is None:
        raise InputError(
            f"--labeled {request.given} holds features: pass their --labels too (.csv or .npy)"
        )
    if request.labels is not None and not features:
        raise InputError("--labels belong to .npy features; a .csv of path,label holds its own")


def _alone(request: ClassifyRequest) -> Classified:
    """Learn, write, and sort the files if asked, or complete an interrupted sorting; no other process works
    in OUT."""
    out, command = request.out, undo_command(request.out)
    half_sorted = f"some files are sorted: the same command sorts the others, `{command}` undoes it"
    before = read_journal(out)
    if before is not None:
        if request.apply != before.how and (request.apply or not before.done):
            which = "a pile sorted" if before.done else "an interrupted sorting"
            raise InputError(
                f"{out} holds {which} by --apply {before.how}: pass that to go on, or `{command}` first (if "
                f"that cannot finish, delete {out / JOURNAL})"
            )
        if not before.done:
            note_left(half_sorted)
            return Classified(out, outcome=complete(before))
    check_out(out)
    try:
        done, planned = _learn(request)
    finally:
        with suppress(PermissionError):  # Windows does not delete a file while it is mapped
            (out / SCRATCH).unlink(missing_ok=True)
    if planned is not None:
        note_left(half_sorted)
        write_journal(planned)
        done = replace(done, outcome=complete(planned))
    return replace(done, sorted_before=before is not None)


def _learn(request: ClassifyRequest) -> tuple[Classified, Sorting | None]:
    """Learn, and write all files of OUT; also what is to be sorted, if that is asked for."""
    out, begun, seconds = request.out, time.monotonic(), Seconds()
    rows = labeled_images(request, seconds)
    write_text(out / SKIPPED, csv_table(("path", "reason"), rows.skipped))
    check_read(request, rows.items)
    with seconds.part("learning"), doing("learning from the labels and the pile"):
        from semishot.sorter.learning import fit_pile
        from semishot.sorter.page import write_page

        fitted = fit_pile(rows, request.reject)
    planned, left_alone = plan_pile(request, fitted) if request.apply else (None, [])
    write_saved_model(out, rows.encoder, fitted.classifier)
    with seconds.part("learning"), doing("choosing what to label next"):
        asked = fitted.next_to_label()
        summary = summarize(fitted, asked)
    moved = planned.steps if planned is not None and planned.how == "move" else ()
    targets = {step.source: step.target for step in moved}
    with seconds.part("page"):
        write_page(out / REPORT, fitted, asked, summary, targets)
    write_text(out / PREDICTIONS, as_csv(fitted.predictions, fitted.labeled_items))
    parts = {part: round(taken, 2) for part, taken in seconds.of.items()}
    summary = replace(summary, seconds=round(time.monotonic() - begun, 2), seconds_by_part=parts)
    text = json.dumps(asdict(summary), indent=1) + "\n"  # ASCII: names need not be UTF-8
    write_text(out / RESULT, text)
    return Classified(out, summary, fitted.predictions, left_alone=left_alone), planned


def plan_pile(request: ClassifyRequest, fitted: "FittedPile") -> tuple[Sorting, list[str]]:
    """Where each file of the pile goes; and notes on those that stay. The target of a link is not moved."""
    assert request.apply is not None
    notes, wanted = list[str](), list[Wanted]()
    for item, label in zip(fitted.rows.items, fitted.labels, strict=True):
        if not item.of_pile or item.source is None or item.path is None:
            continue
        if request.apply == "move" and not item.home and is_linked(item.path, request.unlabeled):
            notes.append(f"{item.path}: a link, or in a linked folder, left where it is")
        else:
            wanted.append(Wanted(item.source, label, item.digest.hex()))
    planned, more = plan(request.out, request.apply, wanted, request.unlabeled)
    return planned, [*notes, *more]
