"""A few labeled images and a pile -> the class of each image, a report, a saved model, sorted files."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from semishot.data.framing import is_drawing
from semishot.errors import InputError, printable
from semishot.estimator.classifier import UNLABELED, PrototypeClassifier
from semishot.estimator.next_labels import next_to_label
from semishot.sorter import move_files
from semishot.sorter.embedding import FillCache, Rows, embed, in_this_process, read_image
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.sorter.encoders import DEFAULT, ImageEncoder, open_encoder, save_encoder
from semishot.sorter.feature_files import feature_rows
from semishot.sorter.journal import How, read_journal
from semishot.sorter.listing import Item, Listing, from_folders, from_table
from semishot.sorter.move_files import LOCK
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
)
from semishot.sorter.page import write_pile_page
from semishot.sorter.predictions import (
    Prediction,
    as_csv,
    predictions_of,
    write_skipped,
    write_text,
)
from semishot.sorter.requests import ClassifyRequest
from semishot.sorter.summary import Classified, Completed, PileSummary
from semishot.system.devices import pick_device
from semishot.system.files import whole_folder
from semishot.system.locks import Lock

__all__ = ["classify"]

LOOKED_AT = 20
"""How many labeled images are checked for being drawings."""


@dataclass(frozen=True)
class Fitted:
    """A classifier and what it was fitted to: labeled rows first, then the pile."""

    rows: Rows
    encoder: ImageEncoder | None
    classifier: PrototypeClassifier
    predictions: list[Prediction]
    """The predictions for the pile."""
    reject: float

    @property
    def labeled(self) -> int:
        """The number of labeled rows."""
        return len(self.rows.items) - len(self.predictions)


def classify(request: ClassifyRequest) -> Classified | Completed:
    """Learn from the labeled images and the pile; write predictions, a page and the model to `out`."""
    out, apply = request.out, request.apply
    _check(request)
    if read_journal(out) is not None:
        with Lock(out / LOCK):
            return _complete(out, apply)
    begun = time.monotonic()
    fill_cache = _fill_cache(request)
    listing = Listing() if request.with_features else _listed(request)
    encoder = None
    if not request.with_features:
        encoder = open_encoder(request.encoder or DEFAULT, request.onnx)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"cannot make the folder --out {out} ({error.strerror})") from error
    with Lock(out / LOCK):
        if read_journal(out) is not None:  # written by a process that this one waited for
            return _complete(out, apply)
        check_out(out, request.cache)  # only now: another process may just have replaced its model
        try:
            rows = _rows(request, listing, encoder, fill_cache)
            write_skipped(out / SKIPPED, rows.skipped)
            notes = [
                *listing.notes,
                *(encoder.notes if encoder else ()),
                *_notes(listing, rows, request.encoder),
            ]
            fitted = _fit(rows, encoder, request.reject)
            summary = _write(out, fitted, notes, begun)
        finally:
            (out / SCRATCH).unlink(missing_ok=True)
        problems = [] if apply is None else _apply(request.unlabeled, out, fitted, apply)
    return Classified(out, fitted.predictions, summary, apply, problems)


def _check(request: ClassifyRequest) -> None:
    """Check the request before anything is read."""
    features, reject = request.with_features, request.reject
    if not 0 < reject < 1:
        raise InputError(f"--reject must be between 0 and 1, not {reject}")
    if features and (request.apply or request.encoder or request.engine):
        raise InputError(
            "features have no files to sort and are embedded already: leave --apply, --encoder and "
            "--engine"
        )
    if request.labels is not None and not features:
        raise InputError("--labels belong to .npy features; a .csv of path,label holds its own")
    if request.out.exists() and not request.out.is_dir():
        raise InputError(f"--out {request.out} is not a folder")


def _fill_cache(request: ClassifyRequest) -> FillCache:
    """The function that embeds: in this process, or on workers."""
    if request.engine is None and request.address is None:
        return partial(in_this_process, pick_device(request.device))
    from semishot.sorter.embedding_on_workers import by_workers
    from semishot.workers.places import place_of

    open_place = place_of(request.engine, request.address, request.device, keep_workers=True)
    assert open_place is not None  # place_of has rejected an address without an engine
    return partial(by_workers, open_place)


def _complete(out: Path, apply: How | None) -> Completed:
    """Complete an interrupted sorting, if requested; refuse to sort over a complete one."""
    before = read_journal(out)
    if before is None:
        raise InputError(f"the sorting in {out} has just been undone; run this again to sort it")
    if before.done:
        raise InputError(
            f"{before.out} holds a sorted pile: `semishot undo {before.out}` puts the files back, or "
            "choose another --out"
        )
    if apply != before.how:
        raise InputError(
            f"an interrupted sorting is in {before.out}: run it with --apply {before.how} to complete it, "
            f"or `semishot undo {before.out}`"
        )
    problems = move_files.complete(before)
    return Completed(before.out, len(before.steps) - len(problems), before.how, problems)


def _listed(request: ClassifyRequest) -> Listing:
    labeled, unlabeled = request.labeled, request.unlabeled
    pile = [unlabeled] if unlabeled is not None else []
    if request.out.resolve() in {folder.resolve() for folder in (labeled, *pile)}:
        raise InputError(f"--out {request.out} holds your images: choose a folder of its own")
    apart = [request.out, *([request.cache] if request.cache else [])]
    if labeled.suffix.lower() == ".csv":
        for folder in pile:
            if not folder.is_dir():
                raise InputError(f"--unlabeled {folder} is not a folder")
        listing = from_table(labeled)
        more = from_folders(None, pile, apart)
        listing.items += more.items
        listing.skipped += more.skipped
    elif unlabeled is None:
        raise InputError(
            f"--labeled {labeled} is a folder: pass --unlabeled, the folder of the pile"
        )
    else:
        listing = from_folders(labeled, pile, apart)
    known = sum(item.label is not None for item in listing.items)
    if not known:
        raise InputError(f"no labeled images in {labeled}; it holds one folder of images per class")
    if known == len(listing.items):
        raise InputError(f"no images to sort in {unlabeled or labeled}")
    return listing


def _rows(
    request: ClassifyRequest, listing: Listing, encoder: ImageEncoder | None, fill_cache: FillCache
) -> Rows:
    """The features of all images, or those that were given."""
    scratch = request.out / SCRATCH
    if encoder is None:
        return feature_rows(request.labeled, request.labels, request.unlabeled, scratch)
    folder = request.cache or request.out / EMBEDDINGS
    cache = EmbeddingCache(folder, encoder.identity, encoder.features)
    rows = embed(listing.items, encoder, cache, scratch, fill_cache)
    rows.skipped[:0] = listing.skipped
    return rows


def _notes(listing: Listing, rows: Rows, encoder: str | None) -> list[str]:
    """Notes for the user about the files."""
    notes = []
    named = {item.label for item in listing.items} - {None}
    for label in sorted(str(label) for label in named - {item.label for item in rows.items}):
        notes.append(f"class {printable(label)} has no readable image: left out")
    labels: dict[bytes, set[str]] = {}
    for item, digest in zip(rows.items, rows.digests, strict=True):
        if digest and item.label is not None:
            labels.setdefault(digest, set()).add(item.label)
    if torn := sum(len(found) > 1 for found in labels.values()):
        notes.append(f"{torn} labeled image(s) lie in more than one class")
    pile = [d for i, d in zip(rows.items, rows.digests, strict=True) if d and i.label is None]
    if same := sum(digest in labels for digest in pile):
        notes.append(f"{same} of the pile are copies of labeled images")
    if twice := len(pile) - len(set(pile)):
        notes.append(f"{twice} of the pile are copies of others in it")
    if encoder is None and _look_drawn(rows.items):
        notes.append("these look like small drawings: --encoder omniglot may do better than photos")
    return notes


def _look_drawn(items: Sequence[Item]) -> bool:
    paths = [item.path for item in items if item.label is not None and item.path][:LOOKED_AT]
    try:
        return bool(paths) and all(is_drawing(read_image(path), str(path)) for path in paths)
    except InputError:  # it has changed meanwhile: give no hint
        return False


def _fit(rows: Rows, encoder: ImageEncoder | None, reject: float) -> Fitted:
    labels = np.array([UNLABELED if i.label is None else i.label for i in rows.items], object)
    unlabeled = np.array([item.label is None for item in rows.items], bool)
    if unlabeled.all():
        raise InputError("no labeled image can be read; skipped.csv says why")
    if not unlabeled.any():
        raise InputError("no image of the pile can be read; skipped.csv says why")
    classifier = PrototypeClassifier().fit(rows.features, labels)
    classifier.set_params(reject=reject)
    first = int(unlabeled.argmax())  # the labeled rows come first
    predictions = predictions_of(classifier, rows.features[first:], rows.items[first:])
    return Fitted(rows, encoder, classifier, predictions, reject)


def _write(out: Path, fitted: Fitted, notes: Sequence[str], begun: float) -> PileSummary:
    """The saved model, the predictions, the page and `result.json`."""
    rows, first = fitted.rows, fitted.labeled
    check_saved_model(out / SAVED_MODEL)  # again: other files may have been added meanwhile
    with whole_folder(out / SAVED_MODEL) as folder:
        save_encoder(fitted.encoder, folder)
        fitted.classifier.save(folder / CLASSIFIER)
    write_text(out / PREDICTIONS, as_csv(fitted.predictions))
    asked = next_to_label(rows.features[first:], fitted.classifier).tolist()
    summary = _summary(fitted, notes, asked)
    write_pile_page(out / REPORT, rows.items[:first], fitted.predictions, asked, summary)
    summary = replace(summary, seconds=round(time.monotonic() - begun, 2))
    text = json.dumps(summary.as_json(), indent=1) + "\n"  # ASCII: names need not be UTF-8
    write_text(out / RESULT, text)
    return summary


def _summary(fitted: Fitted, notes: Sequence[str], asked: Sequence[int]) -> PileSummary:
    classifier, predictions = fitted.classifier, fitted.predictions
    accepted = Counter(p.label for p in predictions if not p.irrelevant)
    known = classifier.members_ is not None
    if len(classifier.classes_) == 1:
        notes = [*notes, "there is one class only: the question is which images belong to it"]
    labels = Counter(i.label for i in fitted.rows.items if i.label is not None)
    return PileSummary(
        encoder=fitted.encoder.name if fitted.encoder else "features",
        labeled=dict(sorted(labels.items())),
        pile=len(predictions),
        accepted={str(name): accepted[str(name)] for name in classifier.classes_},
        irrelevant=sum(p.irrelevant for p in predictions) if known else None,
        reject=fitted.reject,
        skipped=len(fitted.rows.skipped),
        pile_helps=classifier.pile_helps_,
        message=classifier.message_,
        held_out=classifier.held_out_,
        notes=list(notes),
        next_to_label=[predictions[place].item.shown for place in asked],
    )


def _apply(pile: Path | None, out: Path, fitted: Fitted, how: How) -> list[str]:
    """Sort the files of the pile; return what could not be sorted. The target of a link is not moved."""
    digests = {id(i): d for i, d in zip(fitted.rows.items, fitted.rows.digests, strict=True)}
    problems: list[str] = []
    wanted, seen, behind_links = [], set(), 0
    for prediction in fitted.predictions:
        path = prediction.item.path
        assert path is not None
        place = path.parent.resolve() / path.name
        if place in seen:
            continue
        seen.add(place)
        if how == "move" and path.is_symlink():
            problems.append(f"{path}: a link, left where it is")
            continue
        if how == "move" and _behind_link(path, pile):
            behind_links += 1
            continue
        label = None if prediction.irrelevant else prediction.label
        wanted.append((path, label, digests[id(prediction.item)].hex()))
    if behind_links:
        problems.append(f"{behind_links:,} images in linked folders, left where they are")
    return problems + move_files.complete(move_files.plan(out, how, wanted))


def _behind_link(path: Path, pile: Path | None) -> bool:
    """Whether a folder between the pile and its file is a link."""
    if pile is None or not path.is_relative_to(pile):
        return False
    between = len(path.parts) - len(pile.parts) - 1
    return any(folder.is_symlink() for folder in list(path.parents)[:between])
