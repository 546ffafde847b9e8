"""The journal of a sorting, OUT/undo.json: which file of the pile goes where."""

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Literal

from msgspec import Meta, Struct

from semishot.errors import InputError
from semishot.sorter.moving.one_file import is_file
from semishot.sorter.requests import How
from semishot.system.files import read_regular, real_path, sweep, write_whole
from semishot.system.structs import from_json

FORMAT = 2
SORTED, JOURNAL = "sorted", "undo.json"
MOST_BYTES = 2**32
"""The largest journal that is read; one of a million files has a fourteenth of it."""


@dataclass(frozen=True)
class SortStep:
    """One file of a sorting."""

    source: Path
    """Absolute."""
    folder: str
    name: str
    digest: str
    """SHA-256 of the content."""
    was: tuple[str, str] | None = None
    """Of a file that is sorted again: its folder and name in OUT/sorted until then. If they are those of
    the target, the file is left alone, even if it is not there."""

    @property
    def left_alone(self) -> bool:
        return self.was == (self.folder, self.name)


@dataclass(frozen=True)
class Sorting:
    """Which files are moved, copied or linked where."""

    out: Path
    how: How
    done: bool
    steps: tuple[SortStep, ...]
    pile: Path
    """The folder that all sources are in, without links."""

    def target(self, step: SortStep) -> Path:
        return self.out / SORTED / step.folder / step.name

    def targets(self) -> dict[Path, Path]:
        """The source of each file -> where it is when the sorting is complete."""
        return {step.source: self.target(step) for step in self.steps}

    def earlier(self, step: SortStep) -> Path | None:
        """Where a file that is sorted again has been until then."""
        return None if step.was is None else self.out / SORTED / step.was[0] / step.was[1]

    def made(self, step: SortStep, path: Path) -> bool:
        """Whether this is the file, copy or link that a step has made."""
        if self.how == "link":
            return path.is_symlink() and path.readlink() == step.source
        return is_file(path, step.digest)

    def in_place(self, step: SortStep, path: Path) -> bool:
        """Whether it is still there; one that cannot be read is, and stays in the journal."""
        try:
            linked = path.parent.is_symlink() or path.parent.parent.is_symlink()
            return not linked and self.made(step, path)
        except OSError:
            return os.path.lexists(path)


Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class _Journal(Struct):
    """The fields of `undo.json`. The source of a step is relative to the pile."""

    format: Literal[2]
    how: How
    done: bool
    pile: str
    steps: list[tuple[str, str, str, Digest, tuple[str, str] | None]]


def write_journal(sorting: Sorting) -> None:
    """Write OUT/undo.json, whole. OUT is locked, so what a killed process left of one is removed."""
    sweep(sorting.out, JOURNAL, age=0)
    pile = sorting.pile
    steps = [
        [str(s.source.relative_to(pile)), s.folder, s.name, s.digest, s.was] for s in sorting.steps
    ]
    about = {"format": FORMAT, "how": sorting.how, "done": sorting.done, "pile": str(pile)}
    text = json.dumps({**about, "steps": steps}, indent=1)  # ASCII, for names that are not UTF-8
    write_whole(sorting.out / JOURNAL, text)


def undo_command(out: Path) -> str:
    """The command that undoes a sorting, as the user types it in this folder."""
    return f"semishot undo {shlex.quote(str(out))}"


def read_journal(out: Path, below: Path | None = None) -> Sorting | None:
    """The sorting of OUT, if there is one. All its files are below the pile or OUT/sorted.

    below: the folder where its files belong, for a pile that has another name now.
    """
    path = out / JOURNAL
    try:
        content = read_regular(path, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        saved = from_json(_Journal, json.loads(content), JOURNAL)
        pile = Path(saved.pile)
        if not pile.is_absolute():
            raise InputError(f"pile must be an absolute path, not {saved.pile!r:.40}")
        for number, (source, folder, name, _, was) in enumerate(saved.steps):
            for part in (*(PurePath(source).parts or [""]), folder, name, *(was or ())):
                if part in ("", ".", "..") or {"/", os.sep, "\0"} & set(part):
                    raise InputError(f"steps[{number}] leads to {part!r:.40}, no name of a file")
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged, or of another version ({error})") from error
    if below is not None:
        pile, new = real_path(pile), real_path(below)
        pile = pile if pile.is_relative_to(new) else new
    steps = tuple(
        SortStep(pile / source, folder, name, digest, was)
        for source, folder, name, digest, was in saved.steps
    )
    return Sorting(out, saved.how, saved.done, steps, pile)


def moved_files(out: Path, pile: Path | None = None) -> dict[Path, Path]:
    """The sources of files that a sorting has moved -> where they are in OUT, not behind links.

    pile: where they are looked for, if the folder of the sorting is no longer there.
    """
    sorting = read_journal(out)
    if sorting is not None and not sorting.pile.exists():
        sorting = read_journal(out, pile)
    if sorting is None or sorting.how != "move":
        return {}
    folder = real_path(out) / SORTED
    return {
        source: target
        for source, target in sorting.targets().items()
        if target.is_file()
        and real_path(target).is_relative_to(folder)
        and not os.path.lexists(source)
    }
