"""A few labeled images and a pile -> the class of each image, a report, a saved model, sorted files.

SciPy is imported when there is something to learn: what is wrong with a request is said at once, and reading
begins. scikit-learn is not needed.
"""

import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from semishot.errors import InputError, needing_extra
from semishot.sorter.embedding import FillCache, Rows, embed, in_this_process
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.sorter.encoders.encoder_options import DEFAULT
from semishot.sorter.encoders.image_encoder import ImageEncoder, open_encoder, save_encoder
from semishot.sorter.feature_files import FeatureFiles, feature_rows
from semishot.sorter.labeled_images import (
    absent_corrections,
    check_read,
    corrections_in,
    label_rows,
    list_images,
    notes_on_corrections,
)
from semishot.sorter.labels import open_store
from semishot.sorter.listing import Item, Listing
from semishot.sorter.moving.journal import (
    JOURNAL,
    Sorting,
    read_journal,
    undo_command,
    write_journal,
)
from semishot.sorter.moving.move_files import LOCK, complete
from semishot.sorter.moving.plan import Wanted, is_linked, plan
from semishot.sorter.out_folder import (
    CLASSIFIER,
    EMBEDDINGS,
    PREDICTIONS,
    REPORT,
    RESULT,
    SAVED_MODEL,
    SCRATCH,
    SKIPPED,
    check_out,
    check_saved_model,
    make_out,
)
from semishot.sorter.predictions import as_csv, write_skipped, write_text
from semishot.sorter.requests import ClassifyRequest
from semishot.sorter.summary import Classified, PileSummary
from semishot.system.devices import check_device
from semishot.system.files import whole_folder
from semishot.system.locks import Lock
from semishot.system.processes import note_left
from semishot.system.progress import Seconds, doing

if TYPE_CHECKING:
    from semishot.sorter.learning import FittedPile


@dataclass(frozen=True)
class Run:
    """What one run of `classify` works with."""

    encoder: ImageEncoder | None
    fill_cache: FillCache
    seconds: Seconds
    begun: float


def classify(request: ClassifyRequest) -> Classified:
    """Learn from the labeled images and the pile; write predictions, a page and the model to `out`."""
    out = request.out
    _check(request)
    if request.with_features:
        note_left("run it again")
    before = read_journal(out)
    if before is not None and not before.done:
        with Lock(out / LOCK):  # another process may have completed or undone it meanwhile
            before = read_journal(out)
            if before is not None and not before.done:
                return _complete(before, request)
    _check_again(before, request)
    begun, seconds = time.monotonic(), Seconds()
    fill_cache = _fill_cache(request)
    if before is None and not request.with_features:
        with seconds.part("listing"):  # what is wrong with it is said before anything is written
            list_images(request)
    encoder = None
    if not request.with_features:
        encoder = open_encoder(request.encoder or DEFAULT, request.onnx)
    make_out(out)
    with Lock(out / LOCK):
        return _alone(request, Run(encoder, fill_cache, seconds, begun))


def _alone(request: ClassifyRequest, run: Run) -> Classified:
    """Learn, write, and sort the files if asked; no other process works in OUT."""
    out = request.out
    before = read_journal(out)  # one that this one waited for may have sorted
    if before is not None and not before.done:
        return _complete(before, request)
    _check_again(before, request)
    check_out(out, request.cache)  # only now: another process may just have replaced its model
    planned: Sorting | None = None
    left_alone: list[str] = []
    try:
        fitted, notes, absent = _learned(request, run)
        if request.apply is not None:
            planned, left_alone = plan_pile(request, fitted)
        summary = _write(out, fitted, notes, planned, run.seconds)
        write_text(out / PREDICTIONS, as_csv(fitted.predictions, [*fitted.labeled_items, *absent]))
        summary = _timed(out, summary, run.seconds, time.monotonic() - run.begun)
    finally:
        (out / SCRATCH).unlink(missing_ok=True)
    outcome = None
    if planned is not None:
        note_left(_half_sorted(undo_command(out)))
        write_journal(planned)
        outcome = complete(planned)
    return Classified(out, summary, fitted.predictions, outcome, left_alone, before is not None)


def _learned(request: ClassifyRequest, run: Run) -> "tuple[FittedPile, list[str], list[Item]]":
    """The pile, listed, embedded and learned from; notes on its files; and corrections of absent files."""
    with run.seconds.part("listing"):
        listing = Listing() if request.with_features else list_images(request)
    with run.seconds.part("images"):
        rows = _rows(request, listing, run.encoder, run.fill_cache)
    write_skipped(request.out / SKIPPED, rows.skipped)
    absent, notes = absent_corrections(listing, rows), list(listing.notes)
    if not request.with_features:
        with closing(open_store(request.out)) as store:
            notes += label_rows(request, rows, store)
    check_read(request, rows)
    with run.seconds.part("learning"), doing("loading"):
        from semishot.sorter.learning import fit_pile, notes_on_files
    notes += notes_on_corrections(rows.items, absent)
    notes += run.encoder.notes if run.encoder else ()
    notes += notes_on_files(listing, rows, request.encoder)
    with run.seconds.part("learning"), doing("learning from the labels and the pile"):
        return fit_pile(rows, run.encoder, request.reject), notes, absent


def plan_pile(request: ClassifyRequest, fitted: "FittedPile") -> tuple[Sorting, list[str]]:
    """Where each file of the pile goes; and notes on those that stay. The target of a link is not moved."""
    assert request.apply is not None
    how, notes = request.apply, []
    wanted: dict[Path, Wanted] = {}
    for index, item in enumerate(fitted.rows.items):
        source, path = item.source, item.path
        if not item.of_pile or source is None or path is None or source in wanted:
            continue
        if how == "move" and item.home is None and is_linked(path, request.unlabeled):
            notes.append(f"{path}: a link, or in a linked folder, left where it is")
        else:
            digest = fitted.rows.digests[index].hex()
            wanted[source] = Wanted(source, fitted.label_of(index), digest)
    planned, left_alone = plan(request.out, how, list(wanted.values()), request.unlabeled)
    return planned, [*notes, *left_alone]


def _check(request: ClassifyRequest) -> None:
    """Check the request before anything is read."""
    features, reject = request.with_features, request.reject
    if not 0 < reject < 1:
        raise InputError(f"--reject must be between 0 and 1, not {reject}")
    if features and (request.apply or request.encoder or request.engine):
        raise InputError(
            "features have no files to sort and are embedded already: drop --apply, --encoder and "
            "--engine"
        )
    if request.labels is not None and not features:
        raise InputError("--labels belong to .npy features; a .csv of path,label holds its own")
    if request.out.exists() and not request.out.is_dir():
        raise InputError(f"--out {request.out} is not a folder")


def _fill_cache(request: ClassifyRequest) -> FillCache:
    """The function that embeds: in this process, or on workers."""
    if request.engine is None and request.address is None:
        check_device(request.device)
        return partial(in_this_process, request.device)
    with needing_extra("--engine"):
        from semishot.sorter.embedding_on_workers import by_workers
        from semishot.workers.places import place_of

    open_place = place_of(request.engine, request.address, request.device, keep_workers=True)
    assert open_place is not None  # place_of has rejected an address without an engine
    return partial(by_workers, open_place)


def _complete(before: Sorting, request: ClassifyRequest) -> Classified:
    """Complete an interrupted sorting, if requested."""
    command = undo_command(before.out)
    if request.apply != before.how:
        raise InputError(
            f"an interrupted sorting is in {before.out}: run it with --apply {before.how} to complete it, "
            f"or `{command}`"
        )
    note_left(_half_sorted(command))
    return Classified(before.out, outcome=complete(before))


def _half_sorted(command: str) -> str:
    return f"some files are sorted: the same command sorts the others, `{command}` undoes it"


def _check_again(before: Sorting | None, request: ClassifyRequest) -> None:
    """A pile that is sorted can be sorted again in the same way only."""
    if before is not None and request.apply not in (None, before.how):
        raise InputError(
            f"{before.out} holds a pile sorted by --apply {before.how}: pass that to sort it again, or "
            f"`{undo_command(before.out)}` first (if that cannot finish, delete "
            f"{before.out / JOURNAL})"
        )


def _rows(
    request: ClassifyRequest, listing: Listing, encoder: ImageEncoder | None, fill_cache: FillCache
) -> Rows:
    """The features of all images, or those that were given."""
    scratch = request.out / SCRATCH
    if encoder is None:
        corrections = corrections_in(request.out / PREDICTIONS)
        files = FeatureFiles(request.labeled, request.labels, request.unlabeled, corrections)
        return feature_rows(files, scratch)
    folder = request.cache or request.out / EMBEDDINGS
    cache = EmbeddingCache(folder, encoder.identity, encoder.features)
    rows = embed(listing.items, encoder, cache, scratch, fill_cache)
    rows.skipped[:0] = listing.skipped
    return rows


def _write(
    out: Path,
    fitted: "FittedPile",
    notes: Sequence[str],
    planned: Sorting | None,
    seconds: Seconds,
) -> PileSummary:
    """The saved model, the predictions and the page."""
    from semishot.estimator.saved_model import write_model
    from semishot.sorter.learning import summarize
    from semishot.sorter.page import write_pile_page

    check_saved_model(out / SAVED_MODEL)  # again: other files may have been added meanwhile
    with whole_folder(out / SAVED_MODEL) as folder:
        save_encoder(fitted.encoder, folder)
        write_model(folder / CLASSIFIER, fitted.classifier)
    with seconds.part("learning"), doing("choosing what to label next"):
        asked = fitted.next_to_label()
        summary = summarize(fitted, notes, asked)
    targets = {} if planned is None or planned.how != "move" else planned.targets()
    with seconds.part("page"):
        write_pile_page(out / REPORT, fitted, asked, summary, targets)
    for part, taken in fitted.rows.seconds.items():
        seconds.of[part] = taken
    return summary


def _timed(out: Path, summary: PileSummary, seconds: Seconds, whole: float) -> PileSummary:
    """Complete the summary, and write it as `result.json`."""
    parts = {part: round(taken, 2) for part, taken in seconds.of.items()}
    summary = replace(summary, seconds=round(whole, 2), seconds_by_part=parts)
    text = json.dumps(summary.as_json(), indent=1) + "\n"  # ASCII: names need not be UTF-8
    write_text(out / RESULT, text)
    return summary
