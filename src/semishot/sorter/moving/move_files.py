"""Sort files into OUT/sorted/CLASS, in a way that can be undone.

The whole plan is on disk before the first file is touched, every step can be repeated, and no step
overwrites anything. So a sorting that was killed can be completed or undone from its journal alone. One
failing file does not stop the others: it stays where it was. A sorted file that the user has moved or
changed is the user's: it is left alone, and named.
"""

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from semishot.errors import InputError, counted
from semishot.sorter.listing import STRANGER
from semishot.sorter.moving.journal import (
    JOURNAL,
    SORTED,
    Sorting,
    SortStep,
    State,
    read_journal,
    write_journal,
)
from semishot.sorter.moving.one_file import is_file, is_placed, place, remove_parts
from semishot.sorter.requests import How
from semishot.system.files import real_path, real_place
from semishot.system.folder_names import folded, folder_names
from semishot.system.locks import Lock
from semishot.system.progress import track

LOCK = ".lock"
"""The lock file in OUT, while a command works there."""
OF_ALL_FILES = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors that end the work, as the next file would meet them too: above all, a full disk."""
DONE = {"move": "moved", "copy": "copied", "link": "linked"}


class Wanted(NamedTuple):
    """A file of the pile, and where it belongs."""

    source: Path
    """Where it was before anything was sorted."""
    label: str
    """A class, or `stranger`."""
    digest: str


@dataclass(frozen=True)
class Outcome:
    """What was sorted, or undone."""

    how: How
    count: int
    """Files, copies or links that are in their folders of OUT/sorted now, or that were taken back."""
    problems: list[str]
    """With which files that failed, and why."""

    def counts(self, again: bool = False) -> str:
        """`36 files moved, 1 could not be sorted`; `again`: some of them were there already."""
        done = f"{counted(self.count, 'file')} {'in their folders' if again else DONE[self.how]}"
        return f"{done}, {len(self.problems):,} could not be sorted" if self.problems else done

    def undone(self) -> str:
        """`36 files moved back`."""
        if self.how == "move":
            return f"{counted(self.count, 'file')} moved back"
        words = {"copy": ("copy", "copies"), "link": ("link", "links")}[self.how]
        return f"{counted(self.count, *words)} removed; your files stayed where they were"


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

    Files that were sorted before stay if they are not wanted, or lie in the right folder already.
    pile: where the wanted files are, if it was renamed since.
    """
    root = real_path(pile or out)
    before = read_journal(out) or Sorting(out, how, root, ())
    if pile and before.how == "copy" and not before.pile.exists():
        before = read_journal(out, pile) or before
    folders = class_folders(each.label for each in wanted)
    files = {(real_place(each.source), each.digest): each for each in wanted}
    steps, notes = list[SortStep](), list[str]()
    for step in track(before.steps, "looking at sorted files", len(before.steps)):
        state: State = "sorted"
        key = step.source, step.digest
        if before.in_place(step):
            if key in files and step.target.parent.name == folders[files[key].label]:
                state = "todo"  # it counts, and loses a second name that a kill has left
                del files[key]
            elif key in files or (how == "link" and not step.source.exists()):
                state = "leaving"
        elif (now := before.moved_by_hand(step)) is not None:
            notes.append(f"{now}: you moved it there, left where it is")
            files.pop(key, None)
        elif key not in files:
            notes.append(f"{step.target}: gone or changed since it was sorted, left alone")
        else:
            continue  # it is sorted as a new one
        steps.append(step._replace(state=state))
    leaving = {step.source: step.target for step in steps if step.state == "leaving"}
    free = set(leaving.values()) if how == "link" else set()
    taken = {folded(str(step.target)): 1 for step in steps if step.target not in free}
    for (source, digest), each in files.items():
        if how != "move" or source in leaving or os.path.lexists(source):
            target = out / SORTED / folders[each.label] / source.name
            steps.append(SortStep(source, _unique(target, taken, free), digest))
    return Sorting(out, how, root, tuple(steps)), notes


def _unique(target: Path, taken: dict[str, int], free: set[Path]) -> Path:
    """The path, or NAME~2 and so on. taken: how often a name was requested."""
    chosen, asked = target, folded(str(target))
    while folded(str(chosen)) in taken or (chosen not in free and os.path.lexists(chosen)):
        number = taken[asked] = taken.get(asked, 1) + 1
        chosen = target.with_name(f"{target.stem}~{number}{target.suffix}")
    taken.setdefault(folded(str(chosen)), 1)
    return chosen


def complete(sorting: Sorting) -> Outcome:
    """Do the steps of a journal that are not done yet, of every file that allows it.

    A full disk ends the work: it is raised, and the journal stays unfinished.
    """
    todo = [step for step in sorting.steps if step.state == "todo"]
    leaving = [step for step in sorting.steps if step.state == "leaving"]
    links = [step for step in leaving if sorting.how == "link" and sorting.in_place(step)]
    _, stuck = _for_each(sorting, links, "removed", _take_back)
    count, failed = _for_each(sorting, todo, DONE[sorting.how], _sort_one)
    arrived = [s for s in sorting.steps if s.state != "leaving" and s not in failed]
    _keep(sorting, [*arrived, *filter(sorting.in_place, (*leaving, *failed))])
    return Outcome(sorting.how, count, [*stuck.values(), *failed.values()])


def undo(out: Path, below: Path | None = None) -> Outcome:
    """Move all files back, or remove all copies or links.

    What cannot be undone, such as a file that is gone, has changed or was moved by hand, stays in the
    journal. below: the folder where the files belong, if the pile is not where it was.
    """
    if not os.path.lexists(out / JOURNAL):
        raise InputError(f"nothing to undo in {out}: it has no {JOURNAL}")
    with Lock(out / LOCK):
        if (sorting := read_journal(out, below)) is None:
            raise InputError(f"nothing to undo in {out}: another process has done it")
        steps = sorting.steps[::-1]  # what is to leave may be where it was to go
        count, failed = _for_each(sorting, steps, "undone", _take_back)
        _keep(sorting, list(failed)[::-1])
    return Outcome(sorting.how, count, list(failed.values())[::-1])


def _for_each(
    sorting: Sorting,
    steps: Sequence[SortStep],
    done: str,
    work: Callable[[Sorting, SortStep], bool],
) -> tuple[int, dict[SortStep, str]]:
    """Do some work for each file that allows it: for how many, and why not for others.

    An error that every file would meet is raised, with what was done until then.
    """
    count, failed = 0, dict[SortStep, str]()
    for step in track(steps, f"files {done}", len(steps)):
        try:
            _check_links(sorting, step)
            count += work(sorting, step)
        except (OSError, InputError) as error:
            reason = str(getattr(error, "strerror", None) or error)
            if isinstance(error, OSError) and error.errno in OF_ALL_FILES:
                reason = f"{reason} ({count:,} of {len(steps):,} files {done})"
                raise OSError(error.errno, reason, error.filename) from error
            failed[step] = f"{step.source}: {reason}"
    return count, failed


def _check_links(sorting: Sorting, step: SortStep) -> None:
    """Refuse to work through a link that has come between a file and OUT, or the pile."""
    home, folder = step.source.parent, step.target.parent
    leads_away = folder.is_symlink() or folder.parent.is_symlink()
    if leads_away or (sorting.how == "move" and real_path(home) != home):
        raise OSError(
            f"its folder, or {folder}, is a link to elsewhere now: restore it, or undo with --below FOLDER, "
            "the one where files belong"
        )


def _sort_one(sorting: Sorting, step: SortStep) -> bool:
    """Do one step, or what is left of it."""
    step.target.parent.mkdir(parents=True, exist_ok=True)
    earlier = sorting.leaving.get(step.source)
    if earlier is not None and sorting.how != "link" and os.path.lexists(earlier):
        place(earlier, step.target, step.digest, "move")
    place(step.source, step.target, step.digest, sorting.how)
    return True


def _take_back(sorting: Sorting, step: SortStep) -> bool:
    """Move one file back, or remove one copy or link; False if there is nothing to do."""
    how, (source, target, digest, _) = sorting.how, step
    remove_parts(source, target, digest)
    if is_placed(source, target, digest, how):
        if how == "move":
            source.parent.mkdir(parents=True, exist_ok=True)
            place(target, source, digest, how)
        elif how == "copy" and (not is_file(source, digest, links=True) or source.samefile(target)):
            raise OSError(f"{target} is kept: the file is gone, has changed or leads to it")
        else:
            target.unlink()
        return True
    if (now := sorting.moved_by_hand(step)) is not None:
        raise OSError(f"you moved it to {now}, where it stays")
    if how == "move" and is_file(source, digest):
        return False
    if os.path.lexists(target) or (how == "move" and not os.path.lexists(source)):
        raise OSError(f"{target} is gone, or has changed since it was sorted")
    return False


def _keep(sorting: Sorting, steps: Iterable[SortStep]) -> None:
    """Write a journal of these steps only, and remove folders that became empty."""
    sorted_now = tuple(step._replace(state="sorted") for step in steps)
    write_journal(replace(sorting, steps=sorted_now))
    for folder in (*{step.target.parent for step in sorting.steps}, sorting.out / SORTED):
        with suppress(OSError):  # it holds other files, or does not exist
            folder.rmdir()
