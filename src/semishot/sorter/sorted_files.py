"""Where the files of a sorting are now: at their targets, or where the user has moved them by hand."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from semishot.errors import InputError
from semishot.sorter.journal import SORTED, Sorting, Step
from semishot.system.open_files import open_regular
from semishot.system.progress import track

__all__ = ["SortedFile", "digest_of", "find_sorted", "is_file"]

BLOCK = 2**20


@dataclass(frozen=True)
class SortedFile:
    """A step of a sorting, and where its file, copy or link is now."""

    step: Step
    path: Path | None
    """OUT/sorted/FOLDER/NAME; None: it is not there, or not sorted yet."""

    @property
    def moved_by_hand(self) -> bool:
        """Whether the user has put it into the folder of another class."""
        return self.path is not None and self.path.parent.name not in self.own_folders

    @property
    def own_folders(self) -> set[str]:
        return {self.step.folder, *(self.step.was or ())[:1]}

    def at_its_place(self) -> Step:
        """The step, as if it had led to where the file is now."""
        if self.path is None:
            return replace(self.step, was=None)
        return replace(self.step, folder=self.path.parent.name, name=self.path.name, was=None)


def find_sorted(sorting: Sorting) -> list[SortedFile]:
    """Every step, and its file: found by its place, else in any folder of OUT/sorted by its content.

    Copies of one image are alike, so it does not matter which of them is taken for which.
    """
    found: dict[int, Path] = {}
    for place, step in enumerate(
        track(sorting.steps, "looking at sorted files", len(sorting.steps))
    ):
        for path in (sorting.target(step), sorting.earlier(step)):
            if path is not None and _key(sorting, path) == _wanted(sorting, step):
                found[place] = path
                break
    if len(found) < len(sorting.steps):
        taken = set(found.values()) | {
            path for s in sorting.steps if (path := sorting.earlier(s)) is not None
        }
        elsewhere: dict[str, list[Path]] = {}
        for path in _sorted_now(sorting.out / SORTED):
            if path not in taken and (key := _key(sorting, path)) is not None:
                elsewhere.setdefault(key, []).append(path)
        for place, step in enumerate(sorting.steps):
            if place not in found and (paths := elsewhere.get(_wanted(sorting, step))):
                same_name = [path for path in paths if path.name == step.name]
                found[place] = (same_name or paths)[0]
                paths.remove(found[place])
    return [SortedFile(step, found.get(place)) for place, step in enumerate(sorting.steps)]


def _wanted(sorting: Sorting, step: Step) -> str:
    return str(step.source) if sorting.how == "link" else step.digest


def _key(sorting: Sorting, path: Path) -> str | None:
    """What tells which file this is: where a link leads, or the digest of the content."""
    try:
        if any(folder.is_symlink() for folder in (path.parent, path.parent.parent)):
            return None
        if sorting.how == "link":
            return str(path.readlink()) if path.is_symlink() else None
        return digest_of(path) if path.is_file() and not path.is_symlink() else None
    except (OSError, InputError):
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


def digest_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    whole = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(BLOCK):
            whole.update(block)
    return whole.hexdigest()


def is_file(path: Path, digest: str) -> bool:
    """Whether there is a file of this content."""
    return path.is_file() and digest_of(path) == digest
