"""What a user has corrected: in the column `correct` of predictions.csv, or by moving sorted files."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from semishot.errors import InputError, printable
from semishot.sorter.answered_files import Answered, answered
from semishot.sorter.escaped_names import written_path
from semishot.sorter.listing import STRANGER, Item, Listing, Skipped, Table, as_label, read_table
from semishot.sorter.moving.journal import Sorting
from semishot.sorter.moving.plan_files import class_folders
from semishot.sorter.moving.sorted_files import SortedFile
from semishot.sorter.out_folder import PREDICTIONS
from semishot.sorter.predictions import CORRECT, CORRECTED, DECISION, LABELED, RUNNER_UP, unquoted
from semishot.system.files import real_path, real_place

STRANGERS_IN_0_1 = "_irrelevant"
"""The folder of strangers in OUT/sorted, as version 0.1 named it."""


def is_predictions(table: Table, path: Path) -> bool:
    """Whether a table is a predictions.csv, whose labels are guesses, and not a table of labels."""
    if DECISION in table.columns and CORRECT not in table.columns:
        raise InputError(
            f"{path} holds predictions without the column {CORRECT}: its labels are guesses; run classify "
            f"again, and write the right class of an image into the column {CORRECT}"
        )
    return {DECISION, CORRECT} <= set(table.columns)


def from_predictions(path: Path) -> Listing:
    """A predictions.csv, given as --labeled: labeled rows, corrected rows, and the rest of the pile.

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
        correct = _correct(row, classes)
        if not name or "\0" in name:
            listing.skipped.append(Skipped(f"{path}, line {line}", "names no path"))
            continue
        given = row[DECISION] == LABELED
        known = correct or (as_label(label) if given else None)
        item = Item(str(Path(name)), known, Path(name), not given, correct)
        (listing.items if known else pile).append(item)
    listing.items += pile
    return listing


def check_labels(out: Path, classes: Collection[str]) -> None:
    """Refuse to replace OUT/predictions.csv, whose corrections are in the wrong column.

    classes: those known otherwise. What cannot be told is passed over: another class that was not second.
    """
    path = out / PREDICTIONS
    if path.exists():
        table = read_table(path)
        if {"path", "label", RUNNER_UP, DECISION, CORRECT} <= set(table.columns):
            _check_labels(path, table, _classes(table) | set(classes))


def _check_labels(path: Path, table: Table, classes: Collection[str]) -> None:
    """A guess that is not a class, or is the second-best one, was changed: neither is ever written."""
    changed = []
    for line, row in table.rows:
        label, decision = unquoted(row["label"]), row[DECISION]
        if not row["path"] or decision == LABELED or row[CORRECT].strip():
            continue
        unknown = bool(classes) and decision != CORRECTED and label not in classes
        if unknown or label in ("", unquoted(row[RUNNER_UP])):
            changed.append((line, row["path"]))
    if changed:
        line, name = changed[0]
        more = f", and of {len(changed) - 1:,} more," if len(changed) > 1 else ""
        raise InputError(
            f"{path}, line {line}: the label of {printable(name)}{more} was changed; leave it, and write the "
            f"right class into the column {CORRECT}"
        )


def from_answers(path: Path, listing: Listing) -> Listing:
    """OUT/labels.sqlite, given as --labeled: the pile with the labels that were clicked in `label`.

    Labeled images that lie elsewhere, in the folder that `label` was given, are added.
    """
    if not path.is_file():
        raise InputError(f"--labeled {path} is not a file; `semishot label` keeps answers there")
    left = answered(path.parent).labels
    for place, item in enumerate(listing.items):
        label = left.pop(real_place(item.path), None) if item.path else None
        listing.items[place] = replace(item, label=label)
    listing.items += [Item(str(p), label, p) for p, label in left.items() if p.is_file()]
    return listing


def read_corrections(out: Path) -> dict[str, str]:
    """Paths, as OUT/predictions.csv of an earlier run has them -> what its column `correct` says."""
    path = out / PREDICTIONS
    if not path.exists():
        return {}
    table = read_table(path)
    if not {"path", "label", DECISION, CORRECT} <= set(table.columns):
        return {}  # of version 0.1
    classes = _classes(table)
    found = {
        written_path(row["path"]): _correct(row, classes)
        for _, row in table.rows
        if "\0" not in row["path"]
    }
    return {name: correct for name, correct in found.items() if name and correct}


def _classes(table: Table) -> set[str]:
    """The labels of all rows that have one and not a guess."""
    known = [row["label"] for _, row in table.rows if row[DECISION] in (LABELED, CORRECTED)]
    return {as_label(unquoted(label)) for label in known}


def _correct(row: Mapping[str, str], classes: Collection[str]) -> str:
    """What the user wrote: a class, in its own spelling if it is a known one; `stranger`; or nothing."""
    written = as_label(unquoted(row[CORRECT].strip()))
    if not written or written in classes:
        return written
    alike = [name for name in classes if name.casefold() == written.casefold()]
    return alike[0] if len(alike) == 1 else written


@dataclass(frozen=True)
class SortedPile:
    """A sorting that is complete, and where its files are now."""

    sorting: Sorting
    files: list[SortedFile]
    moved: dict[Path, Path] = field(default_factory=dict)
    """Originals of copies and links that the user has moved with the pile: from where to where."""

    @property
    def gone(self) -> set[Path]:
        """The sources of files that are not in OUT/sorted any more, or have changed there."""
        return {one.step.source for one in self.files if one.path is None}


def corrected(
    items: Sequence[Item],
    unlabeled: Path | None,
    out: Path,
    before: SortedPile | None,
    *,
    answers: bool = True,
) -> list[Item]:
    """The items with what their user has corrected since; files that were moved, where they are now.

    A file that was moved by hand was moved after the last run, so that counts more than predictions.csv.
    answers: use what was answered in `label`, too.
    """
    if before is not None and before.sorting.how == "move":
        items = _found_again(items, unlabeled, before)
    moved = before.moved if before is not None else {}
    said = {moved.get(place, place): label for place, label in _said(out, answers).items()}
    classes = {item.label for item in items if item.label} | set(said.values())
    if before is not None:
        of_folder = {folder: label for label, folder in class_folders(classes).items()}
        of_folder[STRANGERS_IN_0_1] = STRANGER
        for one in before.files:
            if one.path is not None and one.moved_by_hand:
                folder = one.path.parent.name
                said[one.step.source] = of_folder.get(folder, as_label(folder))
    by_hand = {one.step.source for one in before.files if one.moved_by_hand} if before else set()
    found = []
    for item in items:
        source = item.source
        if (
            source in said
            and said[source] != item.label
            and (item.of_pile or source not in by_hand)
        ):
            item = replace(item, label=said[source], correct=said[source])
        found.append(item)
    return found


def _said(out: Path, answers: bool) -> dict[Path, str]:
    """The column `correct` of predictions.csv, and answers given in `label`; the later of the two counts."""
    written = {real_place(Path(name)): correct for name, correct in read_corrections(out).items()}
    clicked = answered(out) if answers else Answered()
    path = out / PREDICTIONS
    if path.exists() and path.stat().st_mtime > clicked.at:
        return {**clicked.labels, **written}
    kept = {place: one for place, one in written.items() if place not in clicked.taken_back}
    return {**kept, **clicked.labels}


def absent_corrections(items: Sequence[Item], out: Path, before: SortedPile | None) -> list[Item]:
    """Files that are corrected in OUT/predictions.csv and not among the items: of a pile that was moved."""
    listed = {item.source for item in items} | set(before.moved if before is not None else ())
    said = _said(out, answers=True)
    return [
        Item(name, said[place], Path(name), of_pile=True, correct=said[place])
        for name in read_corrections(out)
        if (place := real_place(Path(name))) not in listed and place in said
    ]


def _found_again(items: Sequence[Item], unlabeled: Path | None, before: SortedPile) -> list[Item]:
    """The items, and what was moved out of the pile since, at its new places."""
    moved = {one.step.source: one.path for one in before.files if one.path is not None}
    found = []
    for item in items:
        place = real_place(item.path) if item.path else None
        if place in moved and item.path is not None and not item.path.exists():
            item = replace(item, path=moved.pop(place), home=place)
        found.append(item)
    root = real_path(unlabeled) if unlabeled is not None else None
    for source, path in moved.items():
        if root is not None and source.is_relative_to(root) and not source.exists():
            assert unlabeled is not None
            shown = str(unlabeled / source.relative_to(root))
            found.append(Item(shown, None, path, of_pile=True, home=source))
    return found


def in_order(items: Sequence[Item]) -> list[Item]:
    """Labeled items first, then the others, as `Listing` promises; each in the order of their paths."""
    labeled = [item for item in items if item.label is not None]
    pile = [item for item in items if item.label is None]
    if any(item.home for item in items):  # in two places: as if the pile were one folder again
        pile.sort(key=lambda item: Path(item.shown).parts)
    return labeled + pile
