"""A few labeled images and a pile -> what each of the pile is, a report, a saved model, a sorted pile.

Letters: M images, N classes.
"""

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from semishot.data.framing import is_drawing
from semishot.errors import InputError, printable
from semishot.estimator.classifier import UNLABELED, PrototypeClassifier
from semishot.estimator.next_labels import next_to_label
from semishot.sorter import move_files
from semishot.sorter.embedding import Remember, Rows, embed, in_this_process, read_image
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.sorter.encoders import DEFAULT, ImageEncoder, open_encoder, save_encoder
from semishot.sorter.feature_files import feature_rows
from semishot.sorter.journal import How, read_journal
from semishot.sorter.listing import Item, Listing, from_folders, from_table
from semishot.sorter.move_files import LOCK
from semishot.sorter.out_folder import (
    CLASSIFIER,
    EMBEDDINGS,
    MODEL,
    SCRATCH,
    check_model,
    check_out,
)
from semishot.sorter.pile_report import REPORT, write_report
from semishot.sorter.predictions import (
    ACCEPT,
    IRRELEVANT,
    Prediction,
    as_csv,
    write_skipped,
    write_text,
)
from semishot.system.devices import pick_device
from semishot.system.files import whole_folder
from semishot.system.locks import Lock

__all__ = ["Outcome", "classify", "judged"]

LOOKED_AT = 20
"""Labeled images that are looked at, to see whether they are drawings."""


@dataclass
class Outcome:
    """What was done, for people and for programs."""

    out: Path
    predictions: list[Prediction] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Files that could not be sorted."""


def classify(
    labeled: Path,
    unlabeled: Path | None,
    out: Path,
    labels: Path | None = None,
    encoder: str | None = None,
    reject: float = 0.05,
    apply: How | None = None,
    cache: Path | None = None,
    device: str = "auto",
    engine: Literal["local", "ray"] | None = None,
    address: str | None = None,
) -> Outcome:
    """Learn from the labeled images and the pile, and write all about the pile to `out`."""
    with_features = labeled.suffix.lower() == ".npy"
    _check(reject, with_features, labels is not None, bool(apply or encoder or engine))
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is no folder")
    if read_journal(out) is not None:
        with Lock(out / LOCK):
            return _go_on(out, apply)
    begun = time.monotonic()
    remember = _by(engine, address, device)
    listing = Listing() if with_features else _listed(labeled, unlabeled, out, cache)
    opened = None if with_features else open_encoder(encoder or DEFAULT)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"cannot make the folder --out {out} ({error.strerror})") from error
    with Lock(out / LOCK):
        if read_journal(out) is not None:  # of a process that we have waited for
            return _go_on(out, apply)
        check_out(out, cache)  # not before: another process may just have been replacing its model
        try:
            if opened is None:
                rows = feature_rows(labeled, labels, unlabeled, out / SCRATCH)
            else:
                kept = EmbeddingCache(cache or out / EMBEDDINGS, opened.identity, opened.features)
                rows = embed(listing.items, opened, kept, out / SCRATCH, remember)
            rows.skipped[:0] = listing.skipped
            write_skipped(out / "skipped.csv", rows.skipped)
            notes = [*listing.notes, *_notes(listing, rows, encoder)]
            classifier, predictions = _learned(rows, reject)
            facts = _facts(rows, classifier, predictions, opened, notes)
            outcome = Outcome(out, predictions, facts)
            _write(outcome, rows, classifier, opened, begun)
        finally:
            (out / SCRATCH).unlink(missing_ok=True)
        if apply is not None:
            _sort(outcome, rows, apply, unlabeled)
    return outcome


def _check(reject: float, features: bool, labels: bool, for_images: bool) -> None:
    """What can be refused before anything is looked at."""
    if not 0 < reject < 1:
        raise InputError(f"--reject must be between 0 and 1, not {reject}")
    if features and for_images:
        raise InputError(
            "features have no files to sort and are embedded already: leave --apply, --encoder and "
            "--engine"
        )
    if labels and not features:
        raise InputError("--labels belong to .npy features; a .csv of path,label holds its own")


def _by(engine: Literal["local", "ray"] | None, address: str | None, device: str) -> Remember:
    """Who embeds: this process, or workers."""
    if engine is None and address is None:
        return partial(in_this_process, pick_device(device))
    from semishot.sorter.embedding_on_workers import by_workers
    from semishot.workers.places import place_of

    open_place = place_of(engine, address, device, keep_workers=True)
    assert open_place is not None  # an address without an engine has been refused
    return partial(by_workers, open_place)


def _go_on(out: Path, apply: How | None) -> Outcome:
    """Complete a sorting that was interrupted, if asked; one that is complete is not sorted over."""
    before = read_journal(out)
    if before is None:
        raise InputError(f"the sorting in {out} has just been undone; run this again to sort anew")
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
    facts = {"completed": len(before.steps) - len(problems), "apply": before.how}
    return Outcome(before.out, facts=facts, problems=problems)


def _listed(labeled: Path, unlabeled: Path | None, out: Path, cache: Path | None) -> Listing:
    pile = [unlabeled] if unlabeled is not None else []
    if out.resolve() in {folder.resolve() for folder in (labeled, *pile)}:
        raise InputError(f"--out {out} holds your images: choose a folder of its own")
    apart = [out, *([cache] if cache else [])]
    if labeled.suffix.lower() == ".csv":
        listing = from_table(labeled)
        more = from_folders(None, _folders(pile), apart)
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


def _folders(places: list[Path]) -> list[Path]:
    for place in places:
        if not place.is_dir():
            raise InputError(f"--unlabeled {place} is no folder")
    return places


def _notes(listing: Listing, rows: Rows, encoder: str | None) -> list[str]:
    """What people should know of their files."""
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
        notes.append(f"{same} of the pile are labeled images once more")
    if twice := len(pile) - len(set(pile)):
        notes.append(f"{twice} of the pile are copies of others in it")
    if encoder is None and _look_drawn(rows.items):
        notes.append("these look like small drawings: --encoder omniglot may do better than photos")
    return notes


def _look_drawn(items: Sequence[Item]) -> bool:
    paths = [item.path for item in items if item.label is not None and item.path][:LOOKED_AT]
    try:
        return bool(paths) and all(is_drawing(read_image(path), str(path)) for path in paths)
    except InputError:  # it has changed since: there will be no hint
        return False


def _learned(rows: Rows, reject: float) -> tuple[PrototypeClassifier, list[Prediction]]:
    labels = np.array([UNLABELED if i.label is None else i.label for i in rows.items], object)
    unlabeled = np.array([item.label is None for item in rows.items], bool)
    if unlabeled.all():
        raise InputError("no labeled image can be read; skipped.csv says why")
    if not unlabeled.any():
        raise InputError("no image of the pile can be read; skipped.csv says why")
    classifier = PrototypeClassifier().fit(rows.features, labels)
    classifier.set_params(reject=reject)
    first = int(unlabeled.argmax())  # the labeled rows come first
    return classifier, judged(classifier, rows.features[first:], rows.items[first:])


def judged(
    classifier: PrototypeClassifier, features: NDArray[np.float32], items: Sequence[Item]
) -> list[Prediction]:
    """The nearest class of each, the next, and whether it is any of them, as far as that is known."""
    probabilities = classifier.predict_proba(features)  # (M, N)
    best = probabilities.argmax(1)
    chance = probabilities.max(1)
    probabilities[np.arange(len(best)), best] = -1
    second = probabilities.argmax(1)
    names = [str(name) for name in classifier.classes_]
    farthest = 1 - (classifier.reject or 0)
    try:
        scores: list[float | None] = classifier.distractor_score(features).tolist()
    except InputError:  # nothing tells how far members may lie
        scores = [None] * len(items)
    return [
        Prediction(
            item,
            names[first],
            float(probability),
            names[next_] if len(names) > 1 else "",
            score,
            IRRELEVANT if score is not None and score > farthest else ACCEPT,
        )
        for item, first, probability, next_, score in zip(
            items, best, chance, second, scores, strict=True
        )
    ]


def _facts(
    rows: Rows,
    classifier: PrototypeClassifier,
    predictions: Sequence[Prediction],
    encoder: ImageEncoder | None,
    notes: list[str],
) -> dict[str, Any]:
    accepted = Counter(p.label for p in predictions if p.decision == ACCEPT)
    known = predictions[0].distractor_score is not None
    if len(classifier.classes_) == 1:
        notes.append("there is one class only: the question is which images belong to it")
    return {
        "encoder": encoder.name if encoder else "features",
        "labeled": dict(
            sorted(Counter(i.label for i in rows.items if i.label is not None).items())
        ),
        "pile": len(predictions),
        "accepted": {str(name): accepted[str(name)] for name in classifier.classes_},
        "irrelevant": sum(p.decision == IRRELEVANT for p in predictions) if known else None,
        "reject": classifier.reject,
        "skipped": len(rows.skipped),
        "pile_helps": classifier.pile_helps_,
        "message": classifier.message_,
        "held_out": classifier.held_out_ and classifier.held_out_._asdict(),
        "notes": notes,
    }


def _write(
    outcome: Outcome,
    rows: Rows,
    classifier: PrototypeClassifier,
    encoder: ImageEncoder | None,
    begun: float,
) -> None:
    out = outcome.out
    check_model(out / MODEL)  # once more: it may have been filled meanwhile
    with whole_folder(out / MODEL) as folder:
        save_encoder(encoder, folder)
        classifier.save(folder / CLASSIFIER)
    write_text(out / "predictions.csv", as_csv(outcome.predictions))
    first = len(rows.items) - len(outcome.predictions)
    next_ = next_to_label(rows.features[first:], classifier).tolist()
    outcome.facts["next_to_label"] = [outcome.predictions[place].item.shown for place in next_]
    write_report(out / REPORT, rows.items[:first], outcome.predictions, next_, outcome.facts)
    outcome.facts["seconds"] = round(time.monotonic() - begun, 2)
    text = json.dumps(outcome.facts, indent=1) + "\n"  # ASCII: names need not be UTF-8
    write_text(out / "result.json", text)


def _sort(outcome: Outcome, rows: Rows, how: How, pile: Path | None) -> None:
    """The files of the pile, by what was said of them; what a link leads to is not moved."""
    digests = {id(i): d for i, d in zip(rows.items, rows.digests, strict=True)}
    wanted, seen, behind_links = [], set(), 0
    for said in outcome.predictions:
        path = said.item.path
        assert path is not None
        place = path.parent.resolve() / path.name
        if place in seen:
            continue
        seen.add(place)
        if how == "move" and path.is_symlink():
            outcome.problems.append(f"{path}: a link, left where it is")
            continue
        if how == "move" and _behind_link(path, pile):
            behind_links += 1
            continue
        label = said.label if said.decision == ACCEPT else None
        wanted.append((path, label, digests[id(said.item)].hex()))
    if behind_links:
        outcome.problems.append(f"{behind_links:,} images in linked folders, left where they are")
    outcome.problems += move_files.complete(move_files.plan(outcome.out, how, wanted))
    outcome.facts["apply"] = how


def _behind_link(path: Path, pile: Path | None) -> bool:
    """Whether a folder between the pile and its file is a link."""
    if pile is None or not path.is_relative_to(pile):
        return False
    between = len(path.parts) - len(pile.parts) - 1
    return any(folder.is_symlink() for folder in list(path.parents)[:between])
