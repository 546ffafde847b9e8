"""The images that `classify` works on, and the label of each: from --labeled, and from OUT/labels.sqlite."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from semishot.errors import InputError, counted, printable
from semishot.sorter.embedding import Rows
from semishot.sorter.labels import (
    DATABASE,
    LabelStore,
    SeenFile,
    open_store,
    status_of,
    stored_name,
)
from semishot.sorter.listing import (
    STRANGER,
    Item,
    Listing,
    Skipped,
    TableRows,
    as_label,
    from_folders,
    from_table,
    read_table,
    to_unpack,
    written_path,
)
from semishot.sorter.moving.journal import read_journal
from semishot.sorter.out_folder import PREDICTIONS, SKIPPED
from semishot.sorter.predictions import CORRECT, CORRECTED, DECISION, LABELED, RUNNER_UP, unquoted
from semishot.sorter.requests import ClassifyRequest
from semishot.system.files import real_path, real_place

BLOCK = 4096
"""Rows of features that are moved at once."""


def list_images(request: ClassifyRequest) -> Listing:
    """The labeled images, then those of the pile, where they are now."""
    labeled, unlabeled = request.labeled, request.unlabeled
    pile = [unlabeled] if unlabeled is not None else []
    if real_path(request.out) in {real_path(folder) for folder in (labeled, *pile)}:
        raise InputError(f"--out {request.out} holds your images: choose a folder of its own")
    check_unread_corrections(request)
    moved = _moved_files(request.out)
    if moved:
        pile = [folder for folder in pile if folder.exists()]  # all of it may have been moved
    apart = [request.out, *([request.cache] if request.cache else [])]
    if labeled.suffix.lower() == ".csv":
        listing = _from_csv(labeled, pile, apart)
    elif unlabeled is None:
        holds = "holds answers" if labeled.name == DATABASE else "is a folder"
        raise InputError(f"--labeled {labeled} {holds}: pass --unlabeled, the folder of the pile")
    elif labeled.name == DATABASE:
        listing = _from_store(labeled, from_folders(None, pile, apart))
    else:
        listing = from_folders(labeled, pile, apart)
    listing.items = _where_they_are(listing.items, unlabeled, moved)
    if not any(item.label not in (None, STRANGER) or item.correct for item in listing.items):
        _check_answers(request)
    if not any(item.of_pile for item in listing.items):
        raise InputError(f"no images to sort in {unlabeled or labeled}")
    return listing


def _check_answers(request: ClassifyRequest) -> None:
    """Without labels in --labeled there must be answers of `semishot label`."""
    labeled = request.labeled
    if (request.out / DATABASE).exists():
        store = open_store(request.out)
        answers = store.state.answers
        store.close()
        if any(answers.values()):
            return
    if labeled.suffix.lower() == ".csv":
        if not read_table(labeled).rows:
            raise InputError(
                f"{labeled} has no rows below its first line: each names an image and its class"
            )
        raise InputError(f"no row of {labeled} has a class: write some into its column label")
    if labeled.name == DATABASE:
        raise InputError(f"no answer in {labeled}: name some classes in `semishot label`")
    raise InputError(f"no labeled images in {labeled}; it holds one folder of images per class")


def _from_csv(table: Path, pile: Sequence[Path], apart: Sequence[Path]) -> Listing:
    """The images of a table, or of predictions.csv, and those of the pile that it does not name."""
    for folder in pile:
        if not folder.is_dir():
            raise InputError(f"--unlabeled {folder} is not a folder{to_unpack(folder)}")
    predicted = is_predictions(read_table(table), table)
    listing = from_predictions(table) if predicted else from_table(table)
    known = {real_path(item.path) for item in listing.items if item.path} if predicted else set()
    more = from_folders(None, pile, apart)
    listing.items += [
        item for item in more.items if item.path and real_path(item.path) not in known
    ]
    listing.skipped += more.skipped
    return listing


def _from_store(path: Path, listing: Listing) -> Listing:
    """The pile, and labeled images that lie elsewhere, where `label` or `classify` have seen them."""
    if not path.is_file():
        raise InputError(f"--labeled {path} is not a file; `semishot label` keeps answers there")
    store = open_store(path.parent)
    begun_in = Path(store.about("folder") or ".")
    listed = {item.source for item in listing.items}
    for name, seen in store.files.items():
        path_now = real_place(begun_in / name)
        if seen.image in store.state.answers and path_now not in listed and path_now.is_file():
            listing.items.insert(0, Item(str(path_now), None, path_now))
    store.close()
    return listing


def is_predictions(table: TableRows, path: Path) -> bool:
    """Whether a table is a predictions.csv, whose labels are guesses, and not a table of labels."""
    if DECISION in table.columns and CORRECT not in table.columns:
        raise InputError(
            f"{path} holds predictions without the column {CORRECT}: its labels are guesses; run classify "
            f"again, and write the right class of an image into the column {CORRECT}"
        )
    return {DECISION, CORRECT} <= set(table.columns)


def from_predictions(path: Path) -> Listing:
    """A predictions.csv, given as --labeled: labeled rows, then the pile with its corrections.

    Paths are as they were written: relative to the folder where `classify` runs.
    """
    table = read_table(path)
    for column in ("path", "label", RUNNER_UP):
        if column not in table.columns:
            raise InputError(f"{path} has no column {column}: run classify again")
    classes = _classes(table)
    _check_labels(path, table, classes)
    listing = Listing()
    pile: list[Item] = []
    for line, row in table.rows:
        name, label = written_path(row["path"]), unquoted(row["label"])
        if not name or "\0" in name:
            listing.skipped.append(Skipped(f"{path}, line {line}", "names no path"))
            continue
        given = row[DECISION] == LABELED
        correct = _correct(row, classes)
        if not correct and row[DECISION] == CORRECTED:
            correct = as_label(label)
        item = Item(
            str(Path(name)), as_label(label) if given else None, Path(name), not given, correct
        )
        (listing.items if given else pile).append(item)
    listing.items += pile
    return listing


def corrections_in(path: Path) -> dict[str, str]:
    """Paths, as a predictions.csv has them -> what its column `correct` says."""
    if not path.exists():
        return {}
    table = read_table(path)
    if not {"path", "label", DECISION, CORRECT} <= set(table.columns):
        return {}
    classes = _classes(table)
    rows = [(written_path(row["path"]), _correct(row, classes)) for _, row in table.rows]
    return {name: correct for name, correct in rows if correct}


def check_unread_corrections(request: ClassifyRequest) -> None:
    """Refuse to replace OUT/predictions.csv while it holds corrections that were not imported."""
    path = request.out / PREDICTIONS
    if real_path(request.labeled) == real_path(path):
        return
    if count := len(corrections_in(path)):
        raise InputError(
            f"{path} has {counted(count, 'correction')}: pass --labeled {path} to use them, or delete it"
        )
    if path.exists():
        table = read_table(path)
        if {"path", "label", RUNNER_UP, DECISION, CORRECT} <= set(table.columns):
            _check_labels(path, table, _classes(table))


def _check_labels(path: Path, table: TableRows, classes: Collection[str]) -> None:
    """A guess that is not a class, or is the second-best one, was changed: neither is ever written."""
    changed = [
        (line, row["path"])
        for line, row in table.rows
        if row["path"] and row[DECISION] not in (LABELED, CORRECTED) and not row[CORRECT].strip()
        if unquoted(row["label"]) not in (classes or {unquoted(row["label"])})
        or unquoted(row["label"]) in ("", unquoted(row[RUNNER_UP]))
    ]
    if changed:
        line, name = changed[0]
        more = f", and of {len(changed) - 1:,} more," if len(changed) > 1 else ""
        raise InputError(
            f"{path}, line {line}: the label of {printable(name)}{more} was changed; leave it, and write the "
            f"right class into the column {CORRECT}"
        )


def _classes(table: TableRows) -> set[str]:
    """The labels of all rows that have one and not a guess."""
    known = [row["label"] for _, row in table.rows if row[DECISION] in (LABELED, CORRECTED)]
    return {as_label(unquoted(label)) for label in known}


def _correct(row: Mapping[str, str], classes: Collection[str]) -> str:
    """What the user wrote: a class, in its own spelling if it is a known one; `stranger`; or nothing."""
    written = as_label(unquoted(row[CORRECT].strip()))
    alike = [name for name in classes if name.casefold() == written.casefold()]
    return alike[0] if written not in classes and len(alike) == 1 else written


def _moved_files(out: Path) -> dict[Path, Path]:
    """The sources of files that a sorting has moved -> where they are."""
    sorting = read_journal(out)
    if sorting is None or sorting.how != "move":
        return {}
    return {
        source: target
        for source, target in sorting.targets().items()
        if target.is_file() and not os.path.lexists(source)
    }


def _where_they_are(
    items: Sequence[Item], unlabeled: Path | None, moved: dict[Path, Path]
) -> list[Item]:
    """The items, and what a sorting has moved out of the pile; labeled ones first."""
    if not moved:
        return [*items]
    here = []
    for item in items:
        source = item.source
        if source in moved and item.path is not None and not item.path.exists():
            item = replace(item, path=moved.pop(source), home=source)
        here.append(item)
    root = real_path(unlabeled) if unlabeled is not None else None
    for source, path in moved.items():
        if root is not None and unlabeled is not None and source.is_relative_to(root):
            shown = str(unlabeled / source.relative_to(root))
            here.append(Item(shown, None, path, of_pile=True, home=source))
    pile = [item for item in here if item.of_pile]
    pile.sort(key=lambda item: Path(item.shown).parts)  # as if the pile were one folder again
    return [*(item for item in here if not item.of_pile), *pile]


def label_rows(request: ClassifyRequest, rows: Rows, store: LabelStore) -> list[str]:
    """Import --labeled into the store, and give each row the label that the store has; returns notes.

    A copy of a labeled image in the pile stays unlabeled here.
    """
    pairs = list(zip(rows.items, rows.digests, strict=True))
    given: dict[bytes, set[str]] = {}
    for item, digest in pairs:
        if not item.of_pile:
            given.setdefault(digest, set()).update([item.label] if item.label else [])
    torn = {digest for digest, labels in given.items() if len(labels) > 1}
    refused: dict[str, str] = {}
    if request.labeled.name != DATABASE:
        known = {digest: min(labels) for digest, labels in given.items() if len(labels) == 1}
        refused = store.import_labels(known)
        seen = [
            (str(item.source), SeenFile(store.images[digest], *status))
            for item, digest in pairs
            if digest in known and item.path and (status := status_of(item.path))
        ]
        store.remember_files(seen)
    refused |= store.correct({digest: item.correct for item, digest in pairs if item.correct})
    names = {name for labels in given.values() for name in labels} - {STRANGER, *refused}
    spelled = {stored_name(name).casefold(): name for name in names}
    for index, (item, digest) in enumerate(pairs):
        label = store.label_of(digest)
        if label is not None:
            label = spelled.get(label.casefold(), label)
        if item.label in names and label == spelled[stored_name(str(item.label)).casefold()]:
            label = item.label  # two classes may differ in case only
        if item.of_pile and digest in given:
            label = None
        elif not item.of_pile and (digest in torn or item.label in refused):
            label = item.label
        rows.items[index] = replace(item, label=label, correct="")
    order_rows(rows)
    lost = store.state.answers.keys() - {store.images.get(digest) for digest in rows.digests}
    notes = [f"label {printable(label)} is not used: {why}" for label, why in refused.items()]
    if lost:
        what = counted(
            len(lost),
            "labeled image is not there or cannot be read; its label stays",
            "labeled images are not there or cannot be read; their labels stay",
        )
        notes.append(f"{what} in {request.out / DATABASE}")
    return notes


def order_rows(rows: Rows) -> None:
    """Labeled rows first, then the others, each in their order; features are moved within their file."""
    labeled = [index for index, item in enumerate(rows.items) if item.label is not None]
    if labeled == list(range(len(labeled))):
        return
    others = [index for index, item in enumerate(rows.items) if item.label is None]
    first, features = np.array(rows.features[labeled]), rows.features
    moved = 0
    for start in range(
        0, len(others), BLOCK
    ):  # to the front: no row is overwritten before it is read
        block = others[start : start + BLOCK]
        features[moved : moved + len(block)] = features[block]
        moved += len(block)
    for end in range(moved, 0, -BLOCK):  # then up, from the last one
        start = max(0, end - BLOCK)
        features[start + len(labeled) : end + len(labeled)] = np.array(features[start:end])
    features[: len(labeled)] = first
    order = [*labeled, *others]
    rows.items[:] = [rows.items[index] for index in order]
    rows.digests[:] = [rows.digests[index] for index in order]


def absent_corrections(listing: Listing, rows: Rows) -> list[Item]:
    """Corrections of files that could not be read: they stay in predictions.csv."""
    read = {item.shown for item in rows.items}
    absent = [item for item in listing.items if item.correct and item.shown not in read]
    return [replace(item, label=item.correct) for item in absent]


def notes_on_corrections(items: Sequence[Item], absent: Sequence[Item]) -> list[str]:
    """How many images of the pile have a label, and which classes only they name."""
    notes = []
    corrected = {str(item.label) for item in items if item.of_pile and item.label}
    if count := sum(item.of_pile and item.label is not None for item in items):
        notes.append(f"{counted(count, 'correction is', 'corrections are')} used")
    named = {item.label for item in items if not item.of_pile}
    if new := sorted(corrected - {*named, STRANGER}):
        shown = ", ".join(printable(name) for name in new[:10])
        notes.append(f"classes that only corrections name: {shown}")
    if absent:
        corrections = counted(len(absent), "correction is of a file", "corrections are of files")
        notes.append(
            f"{corrections} not there or not readable, such as {printable(absent[0].shown)}: kept in "
            f"{PREDICTIONS}"
        )
    return notes


def check_read(request: ClassifyRequest, rows: Rows) -> None:
    """There must be something to learn from, and something to sort."""
    labels = [item.label for item in rows.items]
    why = f"{request.out / SKIPPED} says why"
    if all(label in (None, STRANGER) for label in labels):
        if request.with_features:
            raise InputError(f"no row of {request.labels} has a class: label some of each")
        if request.labeled.name == PREDICTIONS:
            why += f" (the paths in {request.labeled} are relative to the folder where it was made)"
        raise InputError(f"no labeled image can be read; {why}")
    if None not in labels and request.with_features:
        raise InputError(
            f"every row of {request.labeled} has a label: pass --unlabeled, the features of the pile"
        )
    if not request.with_features and not any(item.of_pile for item in rows.items):
        raise InputError(f"no image of the pile can be read; {why}")
