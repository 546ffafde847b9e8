"""What comes out of labeling: sorted files, tables and a saved model, from a snapshot."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from semishot.errors import InputError
from semishot.label.pile_reader import PileReader
from semishot.label.rows import GIVEN
from semishot.label.session import Session
from semishot.label.snapshot import Snapshot, decisions
from semishot.sorter.answer_state import ConflictError
from semishot.sorter.corrections import SortedPile
from semishot.sorter.listing import STRANGER
from semishot.sorter.moved_pile import followed
from semishot.sorter.moving import move_files, plan_files
from semishot.sorter.moving.journal import SORTED, check_undoable, read_journal, trusted
from semishot.sorter.moving.move_files import LOCK, Undone
from semishot.sorter.moving.plan_files import Wanted, behind_link, class_folders
from semishot.sorter.moving.sorted_files import find_sorted
from semishot.sorter.predictions import csv_table, write_text
from semishot.sorter.requests import How
from semishot.system.files import whole_folder
from semishot.system.locks import Lock

Which = Literal["all", "confirmed"]


class Decided(NamedTuple):
    """A file, and what is to become of it."""

    image: int
    file: str
    label: str
    """A class, or `stranger`."""
    probability: float
    stranger: float
    source: Literal["confirmed", "guessed"]
    digest: bytes
    given: bool
    """Whether it lies in --labeled."""


def decided(session: Session, which: Which) -> Iterator[Decided]:
    """Every file of which something is known, in the order of names."""
    snapshot, known = session.snapshot, session.rows
    found, confirmed = decisions(snapshot)
    names = list(snapshot.state.classes.values())
    rows = []
    with known.lock:
        for row, image in enumerate(snapshot.images.tolist()):
            if found[row] == -1 or (which == "confirmed" and not confirmed[row]):
                continue
            label = names[found[row]] if found[row] >= 0 else STRANGER
            source: Literal["confirmed", "guessed"] = "confirmed" if confirmed[row] else "guessed"
            chance, stranger = _chances(snapshot, row, bool(confirmed[row]), label == STRANGER)
            digest = known.digest_of[image]
            given = bool(known.flags(image) & GIVEN)
            for file in known.files.get(image, ()):
                rows.append(Decided(image, file, label, chance, stranger, source, digest, given))
    yield from sorted(rows, key=lambda one: one.file)


def _chances(
    snapshot: Snapshot, row: int, confirmed: bool, is_stranger: bool
) -> tuple[float, float]:
    """The probability of the label, strangers taken into account, and of a stranger."""
    if confirmed:
        return 1.0, float(is_stranger)
    stranger = float(snapshot.stranger[row])
    return (stranger if is_stranger else float(snapshot.sure[row])), stranger


def labels_csv(session: Session, which: Which) -> str:
    """path, label, probability, stranger_probability, source; `classify --labeled` reads it, too."""
    rows = (
        (d.file, d.label, round(d.probability, 4), round(d.stranger, 4), d.source)
        for d in decided(session, which)
    )
    return csv_table(("path", "label", "probability", "stranger_probability", "source"), rows)


def metadata_csv(session: Session, which: Which) -> str:
    """file_name, label: for Hugging Face's ImageFolder, beside the images of the pile, without strangers."""
    rows = (
        (session.rows.shown(d.file), d.label)
        for d in decided(session, which)
        if d.label != STRANGER and not d.given
    )
    return csv_table(("file_name", "label"), rows)


TABLES: dict[str, Callable[[Session, Which], str]] = {
    "labels.csv": labels_csv,
    "metadata.csv": metadata_csv,
}


def write_table(session: Session, name: str, which: Which) -> Path:
    session.caught_up()
    path = session.reader.request.folder / name
    write_text(path, TABLES[name](session, which))
    return path


@dataclass(frozen=True)
class Plan:
    """What sorting would do."""

    folders: dict[str, int]
    """Folder below OUT/sorted -> files."""
    left: int
    """Files of the pile that stay where they are: not read, not known, or not confirmed."""
    links: int
    """Files that are links, or behind links, and are not moved."""
    wanted: list[Wanted]
    bytes: int
    version: int
    """Of the snapshot that it was made from."""


def plan(session: Session, how: How, which: Which) -> Plan:
    """Every file of the pile, with where it would go. The target of a link is not moved."""
    pile, version = session.reader.request.pile, session.caught_up().version
    wanted: list[Wanted] = []
    links, size = 0, 0
    for one in decided(session, which):
        path = Path(one.file)
        if one.given and not path.is_relative_to(pile):
            continue
        if how == "move" and (path.is_symlink() or behind_link(path, pile)):
            links += 1
            continue
        wanted.append(Wanted(path, one.label, one.digest.hex()))
        size += (session.reader.status.get(one.file) or (0, 0))[0]
    names = class_folders(one.label for one in wanted)
    counts = Counter(names[one.label] for one in wanted)
    left = _files_of_pile(session.reader) - len(wanted) - links
    return Plan(dict(sorted(counts.items())), max(0, left), links, wanted, size, version)


def _files_of_pile(reader: PileReader) -> int:
    """Its images, whether they have been read or not."""
    pile, held = reader.request.pile, reader.status
    return sum(seen is not None and Path(name).is_relative_to(pile) for name, seen in held.items())


def sorting_of(session: Session) -> dict[str, Any] | None:
    """The sorting in OUT, if there is one."""
    request = session.reader.request
    sorting = read_journal(request.folder, trusted(request.pile))
    if sorting is None:
        return None
    return {"how": sorting.how, "files": len(sorting.steps), "done": sorting.done}


def apply(
    session: Session, how: How, which: Which, shown: int | None = None
) -> tuple[int, list[str]]:
    """Sort the files; how many were sorted, and which could not be, and why.

    `shown` is the version of the plan that a person has seen: nothing else is done.
    """
    out, pile = session.reader.request.folder, session.reader.request.pile
    with Lock(out / LOCK):
        before = read_journal(out, trusted(pile))
        if before is not None and before.done:
            if before.how != how:
                raise InputError(
                    f"{out / SORTED} was sorted by {before.how}: choose that to sort it again, or undo it"
                )
        elif before is not None:
            if before.how != how:
                raise InputError(
                    f"a sorting was interrupted: undo it, or complete it with {before.how}"
                )
            outcome = move_files.complete(before)
            session.reader.look_again.set()
            return outcome.count, outcome.problems
        files = []
        if before is not None:
            files = followed(SortedPile(before, find_sorted(before)), pile, out).files
        planned = plan(session, how, which)
        if shown is not None and planned.version != shown:
            raise ConflictError("there are new answers or files since then; this is the plan now")
        sorting = plan_files.plan(out, how, planned.wanted, files)
        check_undoable(sorting, pile)
        outcome = move_files.complete(move_files.begin(sorting))
    session.reader.look_again.set()
    return outcome.count, outcome.problems


def undo_sorting(session: Session) -> Undone:
    """Undo it, as `semishot undo OUT` does."""
    request = session.reader.request
    result = move_files.undo(request.folder, trusted(request.pile))
    session.reader.look_again.set()
    return result


def save_model(session: Session) -> Path:
    """OUT/model, for `semishot predict` and `export`, as `classify` leaves it."""
    from semishot.estimator.trained import train
    from semishot.sorter.encoders.image_encoder import save_encoder
    from semishot.sorter.out_folder import CLASSIFIER, SAVED_MODEL, check_saved_model

    snapshot, reader = session.caught_up(), session.reader
    names = np.array([*snapshot.state.classes.values(), ""], object)
    if not (snapshot.answers >= 0).any() or reader.encoder is None:
        raise InputError("a model needs a labeled image; label one first")
    labels = names[np.maximum(snapshot.answers, -1)]
    labels[snapshot.answers == -1] = -1
    labels[snapshot.answers == -2] = -2
    out = reader.request.folder
    classifier, _, _ = train(session.rows.features[: len(labels)], labels, snapshot.state.reject)
    with Lock(out / LOCK):
        check_saved_model(out / SAVED_MODEL)
        with whole_folder(out / SAVED_MODEL) as folder:
            save_encoder(reader.encoder, folder)
            classifier.save(folder / CLASSIFIER)
    return out / SAVED_MODEL


def free_bytes(out: Path) -> int:
    """Room on the disk of OUT."""
    about = os.statvfs(out)
    return about.f_bavail * about.f_frsize
