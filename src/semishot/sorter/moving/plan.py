"""Plan where each file of a pile goes: OUT/sorted/CLASS/NAME, under a name that is free."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from semishot.sorter.listing import STRANGER
from semishot.sorter.moving.journal import SORTED, Sorting, SortStep, read_journal
from semishot.sorter.moving.move_files import moved_by_hand, undo_alone
from semishot.sorter.requests import How
from semishot.system.files import real_path, real_place
from semishot.system.folder_names import folded, folder_names
from semishot.system.progress import track

LONGEST = 255
"""The longest file name, in bytes."""


@dataclass(frozen=True)
class Wanted:
    """A file of the pile, and where it belongs."""

    source: Path
    """Where it was before anything was sorted."""
    label: str
    """A class, or `stranger`."""
    digest: str


def class_folders(labels: Iterable[str]) -> dict[str, str]:
    """The folder of each class in OUT/sorted, and of strangers."""
    classes = {label for label in labels if label != STRANGER}
    return {STRANGER: STRANGER, **folder_names(classes, STRANGER)}


def is_linked(path: Path, pile: Path | None) -> bool:
    """Whether a file, or a folder between it and the pile, is a link: such a file is not moved."""
    if pile is None or not path.is_relative_to(pile):
        return path.is_symlink()
    between = len(path.parts) - len(pile.parts) - 1
    return any(each.is_symlink() for each in (path, *list(path.parents)[:between]))


def plan(
    out: Path, how: How, wanted: Sequence[Wanted], pile: Path | None = None
) -> tuple[Sorting, list[str]]:
    """A target for each file, not yet written as a journal; and notes on files that are left alone.

    Files that were sorted before stay if they are not wanted, or lie in the right folder already; others
    are moved on from there. pile: where the wanted files are, if it was renamed since.
    """
    before = _before(out, pile)
    names = class_folders(each.label for each in wanted)
    files = {(real_place(each.source), each.digest): each for each in wanted}
    there, alone, notes = dict[tuple[Path, str], SortStep](), list[SortStep](), list[str]()
    targets = set(before.targets().values()) if before else set()
    steps = before.steps if before else ()
    for step in track(steps, "looking at sorted files", len(steps)):
        assert before is not None
        key, target = (step.source, step.digest), before.target(step)
        if before.in_place(step, target) and key in files:
            there[key] = step
        elif before.in_place(step, target):
            alone.append(step)
        elif (now := moved_by_hand(before, step, targets)) is not None:
            notes.append(f"{now}: you moved it there, left where it is")
            alone.append(step)
            files.pop(key, None)
        elif key not in files:
            notes.append(f"{target}: gone or changed since it was sorted, left alone")
            alone.append(step)
    taken = {(step.folder, folded(step.name)): 1 for step in alone}
    planned = [replace(step, was=(step.folder, step.name)) for step in alone]
    for key, each in files.items():
        source, folder, present = key[0], names[each.label], there.get(key)
        if present is not None and present.folder == folder:
            planned.append(replace(present, was=None))
        elif present is not None or how != "move" or os.path.lexists(source):
            name = _free_name(out / SORTED / folder, source.name, taken)
            was = None if present is None else (present.folder, present.name)
            planned.append(SortStep(source, folder, name, each.digest, was))
    root = _root(pile, [step.source for step in planned])
    return Sorting(out, how, False, tuple(planned), root), notes


def _root(pile: Path | None, sources: Sequence[Path]) -> Path:
    """The pile, or the innermost folder that holds all files, which a table may name anywhere."""
    if pile is not None and all(source.is_relative_to(real_path(pile)) for source in sources):
        return real_path(pile)
    return Path(os.path.commonpath([source.parent for source in sources]))


def _before(out: Path, pile: Path | None) -> Sorting | None:
    """The sorting that is in OUT, also of a pile that was renamed after it was copied or linked."""
    before = read_journal(out)
    if before is None or before.how == "move" or pile is None or before.pile.exists():
        return before
    renamed = read_journal(out, pile)
    if renamed is None or not any(step.source.is_file() for step in renamed.steps):
        return before  # another pile
    if before.how == "copy":
        return renamed
    undo_alone(before)  # the links lead nowhere
    return read_journal(out)


def _free_name(folder: Path, name: str, taken: dict[tuple[str, str], int]) -> str:
    """The name, or name~2 and so on; `taken` counts how often a name was requested."""
    path, free = Path(name), name
    while (folder.name, folded(free)) in taken or os.path.lexists(folder / free):
        number = taken[folder.name, folded(name)] = taken.get((folder.name, folded(name)), 1) + 1
        tail = f"~{number}{path.suffix}"
        room = max(1, LONGEST - len(os.fsencode(tail)))
        stem = os.fsencode(path.stem)
        free = (path.stem if len(stem) <= room else stem[:room].decode(errors="ignore")) + tail
    taken.setdefault((folder.name, folded(free)), 1)
    return free
