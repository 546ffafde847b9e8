"""Move, copy or link files to OUT/sorted/CLASS, in a way that can be undone.

The whole plan is on disk before the first file is touched, every step can be repeated, and no step
overwrites anything. So a sorting that was killed can be completed or undone from its journal alone.
A finished sorting can be planned again: what changed is moved from where it is now, and the journal
still knows where each file came from. What is wrong with one file is that file's problem: the others
are sorted, and it stays where it was.
"""

import errno
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from semishot.errors import InputError, counted
from semishot.sorter.moving.journal import (
    JOURNAL,
    MOST_PLANNED,
    SORTED,
    Sorting,
    Step,
    read_journal,
    write_journal,
)
from semishot.sorter.moving.move_one import check_folder, is_sorted, sort_one, take_back
from semishot.sorter.moving.sorted_files import find_sorted
from semishot.sorter.requests import How
from semishot.system.files import sweep
from semishot.system.locks import Lock
from semishot.system.progress import track

LOCK = ".lock"
"""The lock file in OUT, while a command works there."""
OF_ALL_FILES = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors that end the work, as the next file would meet them too: above all, a full disk."""
DONE = {"move": "moved", "copy": "copied", "link": "linked"}


def begin(sorting: Sorting) -> Sorting:
    """Write the plan, before any file is touched.

    Links to where the pile was lead nowhere, and are removed first: the journal that is there until then
    knows them, and the sorting that follows, or the next one after a kill, makes them anew.
    """
    for path, led in sorting.stale:
        check_folder(path.parent)
        if path.is_symlink() and path.readlink() == led:
            path.unlink()
    write_journal(sorting, MOST_PLANNED)
    return sorting


@dataclass(frozen=True)
class Outcome:
    """What `complete` did."""

    how: How
    count: int
    """Files, copies or links that are in their folders of OUT/sorted now."""
    left: int
    """Files that could not be sorted, and stayed where they were."""
    gone: int
    """Files that are neither where they were nor in OUT/sorted."""
    problems: list[str]
    """Which files could not be sorted, and why."""
    undoable: bool
    """Whether there is something to undo."""

    def counts(self, again: bool = False) -> str:
        """`36 files moved, 1 stayed where it was`; `again`: some of them were there already."""
        done = "in their folders" if again else DONE[self.how]
        parts = [f"{counted(self.count, 'file')} {done}"]
        if self.left:
            parts.append(counted(self.left, "stayed where it was", "stayed where they were"))
        if self.gone:
            parts.append(counted(self.gone, "is gone", "are gone"))
        return ", ".join(parts)


def complete(sorting: Sorting) -> Outcome:
    """Do the steps that are not done yet, of every file that allows it.

    A full disk ends the work: it is raised, and the journal stays unfinished.
    """
    for folder in {sorting.target(step).parent for step in sorting.steps}:
        check_folder(folder)
    failed: dict[int, str] = {}
    for place, step in enumerate(track(sorting.steps, f"{sorting.how} files", len(sorting.steps))):
        if step.left_alone:
            continue
        try:
            sort_one(sorting, step)
        except (OSError, InputError) as error:
            done, of = place - len(failed), len(sorting.steps)
            said = (
                f"{done:,} of {of:,} files {DONE[sorting.how]}, the others stayed where they were"
            )
            _raise_if_of_all(error, said)
            failed[place] = said_of(step.source, error)
    return _finish(sorting, failed)


def _raise_if_of_all(error: OSError | InputError, done: str) -> None:
    """Raise an error that is not of one file, with what was done until then."""
    if isinstance(error, OSError) and error.errno in OF_ALL_FILES:
        raise OSError(error.errno, f"{error.strerror} ({done})", error.filename) from error


def said_of(path: Path, error: Exception) -> str:
    """A line about one file; the messages of some errors begin with its path."""
    reason = str(getattr(error, "strerror", None) or error)
    return reason if reason.startswith(str(path)) else f"{path}: {reason}"


def _finish(sorting: Sorting, failed: dict[int, str]) -> Outcome:
    """Write the journal of what is in OUT/sorted, and count the rest."""
    steps = dict(enumerate(sorting.steps))
    for place in failed:
        del steps[place]
    alone = sum(step.left_alone for step in steps.values())
    count, left, problems = len(steps) - alone, 0, []
    absent: dict[int, Step] = {}
    for place, problem in failed.items():
        step, earlier = sorting.steps[place], sorting.earlier(sorting.steps[place])
        if earlier is not None and _is_there(sorting, step, earlier):
            steps[place] = replace(step, folder=earlier.parent.name, name=earlier.name)
        elif _is_there(sorting, step, sorting.target(step)):
            steps[place] = step
        elif not (step.source.is_file() if sorting.how != "move" else _is_regular(step.source)):
            absent[place] = step
            continue
        left += 1
        problems.append(problem)
    known = {sorting.target(step) for step in steps.values()}
    looked = replace(sorting, steps=tuple(absent.values()))
    for place, found in zip(absent, find_sorted(looked, known) if absent else (), strict=True):
        if found.path is not None:  # moved by hand, to another class
            steps[place] = found.at_its_place()
            count += 1
        else:
            problems.append(failed[place])
            if not found.sure:  # it may be among those that cannot be read now
                steps[place] = sorting.steps[place]
    kept = tuple(replace(steps[place], was=None) for place in sorted(steps))
    if kept:
        write_journal(Sorting(sorting.out, sorting.how, True, kept))
    else:
        _remove_journal(sorting.out)
    _remove_empty(sorting, kept)
    gone = len(problems) - left
    return Outcome(sorting.how, count, left, gone, problems, bool(kept))


def _is_there(sorting: Sorting, step: Step, path: Path) -> bool:
    try:
        return not path.parent.is_symlink() and is_sorted(sorting.how, step, path)
    except OSError:
        return os.path.lexists(path)  # it cannot be read: it stays in the journal


def _is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


@dataclass(frozen=True)
class Undone:
    """What `undo` did."""

    how: How
    count: int
    """Files moved back, or copies or links removed."""
    problems: list[str]
    """What is left, and why."""

    def line(self) -> str:
        if self.how == "move":
            return f"{counted(self.count, 'file')} moved back"
        words = {"copy": ("copy", "copies"), "link": ("link", "links")}[self.how]
        return f"{counted(self.count, *words)} removed; your files stayed where they were"


def undo(out: Path, below: Path | None = None) -> Undone:
    """Move all files back, or remove all copies or links; those moved by hand in OUT/sorted too.

    What cannot be undone, such as a file that is gone or has changed, stays in the journal.
    below: the only folder that files may be put back to. Required for a journal of another user.
    """
    first = read_journal(out, below)
    if first is None:
        raise InputError(f"nothing to undo in {out}: it has no {JOURNAL}")
    with Lock(out / LOCK):
        sorting = read_journal(out, below)
        if sorting is None:  # another process has undone it
            return Undone(first.how, 0, [])
        return _put_back(sorting, below is not None)


def _put_back(sorting: Sorting, linked: bool) -> Undone:
    problems, count, left = [], 0, []
    files = find_sorted(sorting)
    for found in files:
        step, target = found.step, found.path or sorting.target(found.step)
        try:
            count += take_back(sorting, step, found.path, linked=linked)
        except (OSError, InputError) as error:
            _raise_if_of_all(error, f"{count:,} of {len(files):,} files undone")
            problems.append(said_of(target, error))
            if sorting.done or not found.sure or not isinstance(error, FileNotFoundError):
                left.append(step)  # else it may have vanished before it was sorted
    _remove_empty(sorting, sorting.steps, {one.path.parent for one in files if one.path})
    if left:
        write_journal(Sorting(sorting.out, sorting.how, sorting.done, tuple(left)))
    else:
        _remove_journal(sorting.out)
    return Undone(sorting.how, count, problems)


def _remove_journal(out: Path) -> None:
    (out / JOURNAL).unlink(missing_ok=True)
    sweep(out, JOURNAL)  # what a process has left that was killed while it wrote one


def _remove_empty(sorting: Sorting, steps: Sequence[Step], more: Collection[Path] = ()) -> None:
    folders = {*more, *(sorting.target(step).parent for step in (*sorting.steps, *steps))}
    folders |= {path.parent for step in sorting.steps if (path := sorting.earlier(step))}
    if (sorting.out / SORTED).is_symlink():
        return
    for folder in (*sorted(folders), sorting.out / SORTED):
        with suppress(OSError):  # it holds other files, or does not exist
            folder.rmdir()
