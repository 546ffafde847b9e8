"""Move, copy or link files to OUT/sorted/CLASS, in a way that can be undone.

The whole plan is on disk before the first file is touched, every step can be repeated, and no step
overwrites anything. So a sorting that was killed can be completed or undone from its journal alone.
One failing file does not stop the others: it stays where it was. A sorted file that the user has moved or
changed is the user's: it is left alone, and named.
"""

import errno
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from semishot.errors import InputError, counted
from semishot.sorter.moving.journal import (
    JOURNAL,
    SORTED,
    Sorting,
    SortStep,
    read_journal,
    write_journal,
)
from semishot.sorter.moving.one_file import copy_file, is_file, move_file, remove_part
from semishot.sorter.requests import How
from semishot.system.files import real_path, sweep
from semishot.system.locks import Lock
from semishot.system.progress import track

LOCK = ".lock"
"""The lock file in OUT, while a command works there."""
OF_ALL_FILES = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors that end the work, as the next file would meet them too: above all, a full disk."""
DONE = {"move": "moved", "copy": "copied", "link": "linked"}
BEHIND_LINK = (
    "{} is a link to elsewhere now: restore the folder, or name the folder where its files belong, "
    "`semishot undo OUT --below FOLDER`"
)


@dataclass(frozen=True)
class Outcome:
    """What `complete` did."""

    how: How
    count: int
    """Files, copies or links that are in their folders of OUT/sorted now."""
    left: int
    """Files that could not be sorted, and stayed where they were."""
    problems: list[str]
    """Which files could not be sorted, and why."""
    undoable: bool
    """Whether there is something to undo."""

    def counts(self, again: bool = False) -> str:
        """`36 files moved, 1 stayed where it was`; `again`: some of them were there already."""
        parts = [f"{counted(self.count, 'file')} {'in their folders' if again else DONE[self.how]}"]
        if self.left:
            parts.append(counted(self.left, "stayed where it was", "stayed where they were"))
        if gone := len(self.problems) - self.left:  # neither where they were nor in OUT/sorted
            parts.append(counted(gone, "is gone", "are gone"))
        return ", ".join(parts)


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


def complete(sorting: Sorting) -> Outcome:
    """Do the steps of a journal that are not done yet, of every file that allows it.

    A full disk ends the work: it is raised, and the journal stays unfinished.
    """
    for folder in {sorting.target(step).parent for step in sorting.steps}:
        for path in (folder.parent, folder):
            if path.is_symlink():
                raise InputError(
                    f"{path} is a link to elsewhere; nothing is sorted into it: remove the link"
                )
    failed: dict[int, str] = {}
    for index, step in enumerate(track(sorting.steps, f"{sorting.how} files", len(sorting.steps))):
        try:
            if not step.left_alone:
                _sort_one(sorting, step)
        except (OSError, InputError) as error:
            done = f"{index - len(failed):,} of {len(sorting.steps):,} files {DONE[sorting.how]}"
            failed[index] = _problem(
                step.source, error, f"{done}, the others stayed where they were"
            )
    return _finish(sorting, failed)


def _sort_one(sorting: Sorting, step: SortStep) -> None:
    """Do one step, or what is left of it."""
    target, earlier, source = sorting.target(step), sorting.earlier(step), step.source
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_parts(sorting, step)
    if earlier is not None and not sorting.in_place(step, earlier):
        earlier = None
    if sorting.how == "link":
        if not sorting.made(step, target):
            if not source.is_file():
                raise FileNotFoundError(errno.ENOENT, "it is gone, or not a file")
            target.symlink_to(source)
        if earlier is not None:
            earlier.unlink()
        return
    if earlier is not None:
        move_file(earlier, target, step.digest)
    if sorting.how == "copy":
        copy_file(source, target, step.digest)
    elif _is_home(source):
        move_file(source, target, step.digest)
    elif not is_file(target, step.digest):
        raise OSError(BEHIND_LINK.format(source.parent))


def _is_home(source: Path) -> bool:
    """Whether no link has come between the pile and its file since it was sorted."""
    return real_path(source.parent) == source.parent


def _remove_parts(sorting: Sorting, step: SortStep) -> None:
    for path in (sorting.target(step), sorting.earlier(step), step.source):
        if path is not None:
            remove_part(path, step.digest)


def _problem(path: Path, error: OSError | InputError, done: str) -> str:
    """A line about one file; an error of all files is raised, with what was done until then."""
    if isinstance(error, OSError) and error.errno in OF_ALL_FILES:
        raise OSError(error.errno, f"{error.strerror} ({done})", error.filename) from error
    reason = str(getattr(error, "strerror", None) or error)
    return reason if reason.startswith(str(path)) else f"{path}: {reason}"


def _finish(sorting: Sorting, failed: dict[int, str]) -> Outcome:
    """Write the journal of what is in OUT/sorted, and count the rest."""
    kept, left = [], 0
    for index, step in enumerate(sorting.steps):
        if index in failed:
            places = [sorting.earlier(step), sorting.target(step)]
            present = next((p for p in places if p and sorting.in_place(step, p)), None)
            left += present is not None or step.source.is_file()
            if present is None:
                continue
            step = replace(step, folder=present.parent.name, name=present.name)
        kept.append(replace(step, was=None))
    _keep(replace(sorting, done=True), kept)
    count = len(sorting.steps) - sum(step.left_alone for step in sorting.steps) - len(failed)
    return Outcome(sorting.how, count, left, list(failed.values()), bool(kept))


def _keep(sorting: Sorting, steps: list[SortStep]) -> None:
    """Write a journal of these steps only, and remove folders that became empty."""
    out = sorting.out
    if steps:
        write_journal(replace(sorting, steps=tuple(steps)))
    else:
        (out / JOURNAL).unlink(missing_ok=True)
        sweep(out, JOURNAL, age=0)  # what a process has left that was killed while it wrote one
    places = [of(step) for step in sorting.steps for of in (sorting.target, sorting.earlier)]
    folders = {path.parent for path in places if path is not None}
    if not (out / SORTED).is_symlink():
        for folder in (*sorted(folders), out / SORTED):
            with suppress(OSError):  # it holds other files, or does not exist
                folder.rmdir()


def undo(out: Path, below: Path | None = None) -> Undone:
    """Move all files back, or remove all copies or links.

    What cannot be undone, such as a file that is gone, has changed or was moved by hand, stays in the
    journal. below: the folder where the files belong, if the pile is not where it was.
    """
    nothing = InputError(f"nothing to undo in {out}: it has no {JOURNAL}")
    if read_journal(out, below) is None:
        raise nothing
    with Lock(out / LOCK):
        if (sorting := read_journal(out, below)) is None:  # another process has undone it
            raise nothing
        return undo_alone(sorting)


def undo_alone(sorting: Sorting) -> Undone:
    """Undo a sorting while no other process works in OUT."""
    problems, count, left = [], 0, []
    targets = set(sorting.targets().values())
    for step in track(sorting.steps, "undoing", len(sorting.steps)):
        try:
            count += _take_back(sorting, step, targets)
        except (OSError, InputError) as error:
            done = f"{count:,} of {len(sorting.steps):,} files undone"
            problems.append(_problem(sorting.target(step), error, done))
            if sorting.done or not isinstance(error, FileNotFoundError):
                left.append(step)  # else it may have vanished before it was sorted
    _keep(sorting, left)
    return Undone(sorting.how, count, problems)


def _take_back(sorting: Sorting, step: SortStep, targets: Collection[Path]) -> bool:
    """Move one file back, or remove one copy or link; False if there is nothing to do."""
    target, moves = sorting.target(step), sorting.how == "move"
    places = dict.fromkeys([target, sorting.earlier(step) or target])
    for path in places:
        if path.parent.is_symlink() or path.parent.parent.is_symlink():
            raise OSError(f"{path.parent} is a link to elsewhere")
    _remove_parts(sorting, step)
    present = [path for path in places if sorting.made(step, path)]
    for path in present:
        _put_back(sorting.how, step, path)
    if present:
        return True
    if (now := moved_by_hand(sorting, step, targets)) is not None:
        raise OSError(f"you moved it to {now}, where it stays")
    is_back = not moves or is_file(step.source, step.digest)
    if os.path.lexists(target) and not (moves and is_back):  # else it was never moved, or is back
        raise OSError("it has changed since it was sorted")
    if not is_back and not os.path.lexists(step.source):
        raise FileNotFoundError(errno.ENOENT, f"it is gone, and {step.source} is not there either")
    return False


def _put_back(how: How, step: SortStep, path: Path) -> None:
    source = step.source
    if how == "move":
        if not _is_home(source):
            raise OSError(BEHIND_LINK.format(source.parent))
        if os.path.lexists(source) and not is_file(source, step.digest):
            raise OSError(f"{source} exists again, with different content")
        source.parent.mkdir(parents=True, exist_ok=True)
        move_file(path, source, step.digest)
        return
    if how == "copy" and (not is_file(source, step.digest, links=True) or source.samefile(path)):
        raise OSError(f"it is kept: {source} is gone, has changed or leads to it")
    path.unlink()


def moved_by_hand(sorting: Sorting, step: SortStep, targets: Collection[Path]) -> Path | None:
    """Where the user has put a sorted file: under its name in another folder of OUT/sorted."""
    with suppress(OSError):
        for folder in sorted((sorting.out / SORTED).iterdir()):
            path = folder / step.name
            if path not in targets and sorting.in_place(step, path):
                return path
    return None
