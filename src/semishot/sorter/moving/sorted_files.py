"""Where the files of a sorting are now: at their targets, or where the user has moved them by hand."""

import errno
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from semishot.errors import InputError
from semishot.sorter.moving.journal import SORTED, Sorting, Step
from semishot.system.progress import track
from semishot.system.transfer import digest_of


@dataclass(frozen=True)
class SortedFile:
    """A step of a sorting, and where its file, copy or link is now."""

    step: Step
    path: Path | None
    """OUT/sorted/FOLDER/NAME; None: it is not there, or not sorted yet."""
    sure: bool = True
    """Whether every file of OUT/sorted could be read while it was searched."""
    led: Path | None = None
    """Of a link whose file has been moved with the pile since: where it leads. `step` has the new place."""

    @property
    def moved_by_hand(self) -> bool:
        """Whether the user has put it into the folder of another class."""
        return self.path is not None and self.path.parent.name not in self.own_folders

    @property
    def own_folders(self) -> set[str]:
        return {self.step.folder, *(self.step.was or ())[:1]}

    def at_its_place(self) -> Step:
        """The step, as if it had led to where the file is now."""
        step = replace(self.step, source=self.led or self.step.source, was=None)
        if self.path is None:
            return step
        return replace(step, folder=self.path.parent.name, name=self.path.name)


def find_sorted(sorting: Sorting, known: Collection[Path] = ()) -> list[SortedFile]:
    """Every step, and its file: found by its place, else in any folder of OUT/sorted by its content.

    Copies of one image are alike, so it does not matter which of them is taken for which.
    known: files of other steps, which are not looked at.
    """
    found: dict[int, Path] = {}
    taken = set(known)
    for place, step in enumerate(
        track(sorting.steps, "looking at sorted files", len(sorting.steps))
    ):
        for path in (sorting.target(step), sorting.earlier(step)):
            if path is None or path in taken or _key(sorting, path) != _wanted(sorting, step):
                continue
            found[place] = path
            taken.add(path)
            break
    unreadable: list[Path] = []
    if len(found) < len(sorting.steps):
        elsewhere = _elsewhere(sorting, found, taken, unreadable)
        for place, step in enumerate(sorting.steps):
            if place not in found and (paths := elsewhere.get(_wanted(sorting, step))):
                same_name = [path for path in paths if path.name == step.name]
                found[place] = (same_name or paths)[0]
                paths.remove(found[place])
    sure = not unreadable
    return [SortedFile(step, found.get(place), sure) for place, step in enumerate(sorting.steps)]


def _elsewhere(
    sorting: Sorting, found: Collection[int], taken: Collection[Path], unreadable: list[Path]
) -> dict[str, list[Path]]:
    """The other files of OUT/sorted by their keys; without the second names of files that were found.

    unreadable: takes those that cannot be read.
    """
    second = {(sorting.earlier(step), _wanted(sorting, step)) for step in _at(sorting, found)}
    elsewhere: dict[str, list[Path]] = {}
    for path in _sorted_now(sorting.out / SORTED):
        if (
            path in taken
            or (key := _key(sorting, path, unreadable)) is None
            or (path, key) in second
        ):
            continue
        elsewhere.setdefault(key, []).append(path)
    return elsewhere


def _at(sorting: Sorting, places: Collection[int]) -> Iterator[Step]:
    return (sorting.steps[place] for place in places)


def _wanted(sorting: Sorting, step: Step) -> str:
    return str(step.source) if sorting.how == "link" else step.digest


def _key(sorting: Sorting, path: Path, unreadable: list[Path] | None = None) -> str | None:
    """What tells which file this is: where a link leads, or the digest of the content."""
    try:
        if any(folder.is_symlink() for folder in (path.parent, path.parent.parent)):
            return None
        if sorting.how == "link":
            return str(path.readlink()) if path.is_symlink() else None
        return digest_of(path)
    except InputError:  # not a regular file
        return None
    except OSError as error:
        if unreadable is not None and error.errno not in (errno.ENOENT, errno.ENOTDIR):
            unreadable.append(path)
        return None


def _sorted_now(folder: Path) -> Iterator[Path]:
    """Every OUT/sorted/FOLDER/NAME, except hidden ones."""
    for inner in _entries(folder):
        if inner.is_dir() and not inner.is_symlink():
            yield from _entries(inner)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []
