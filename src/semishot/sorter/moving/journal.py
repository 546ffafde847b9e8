"""The journal of a sorting, OUT/undo.json: which file of the pile goes where."""

import json
import os
import shlex
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from semishot.errors import InputError
from semishot.sorter.moving.one_file import is_placed
from semishot.sorter.requests import How
from semishot.system.files import read_json, real_path, sweep, write_whole
from semishot.system.structs import from_json

SORTED, JOURNAL = "sorted", "undo.json"
State = Literal["leaving", "sorted", "todo"]
"""Of a file: it was sorted before and goes elsewhere now; it was sorted before; it is to be sorted."""


class SortStep(NamedTuple):
    """One file of a sorting."""

    source: Path
    """In the pile; absolute."""
    target: Path
    """OUT/sorted/CLASS/NAME."""
    digest: str
    """SHA-256 of the content."""
    state: State = "todo"


@dataclass(frozen=True)
class Sorting:
    """Which files are moved, copied or linked where."""

    out: Path
    how: How
    pile: Path
    """The folder that all sources are in, without links."""
    steps: tuple[SortStep, ...]

    @property
    def done(self) -> bool:
        return all(step.state == "sorted" for step in self.steps)

    @cached_property
    def targets(self) -> dict[Path, Path]:
        """Where each file is when the sorting is complete -> its source."""
        return {step.target: step.source for step in self.steps}

    @cached_property
    def leaving(self) -> dict[Path, Path]:
        """The source of each file that goes elsewhere now -> where it has been until then."""
        return {step.source: step.target for step in self.steps if step.state == "leaving"}

    def in_place(self, step: SortStep) -> bool:
        """Whether a file is where it was sorted to, unchanged; one that cannot be read is."""
        try:
            return is_placed(step.source, step.target, step.digest, self.how)
        except OSError:
            return os.path.lexists(step.target)

    def moved_by_hand(self, step: SortStep) -> Path | None:
        """Where the user has put a sorted file: under its name in another folder of OUT/sorted."""
        with suppress(OSError):
            for folder in sorted((self.out / SORTED).iterdir()):
                path = folder / step.target.name
                if path not in self.targets and is_placed(step.source, path, step.digest, self.how):
                    return path
        return None


Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class _Journal(Struct):
    """The fields of `undo.json`. A source is relative to the pile, a target to OUT/sorted."""

    format: Literal[3]
    how: How
    pile: str
    steps: list[tuple[str, str, Digest, State]]


def write_journal(sorting: Sorting) -> None:
    """Write OUT/undo.json, whole; without a step there is none. OUT is locked."""
    path, pile, steps = sorting.out / JOURNAL, sorting.pile, sorting.steps
    sweep(sorting.out, JOURNAL, age=0)  # what a killed process has left of one
    if not steps:
        path.unlink(missing_ok=True)
        return
    if not all(step.source.is_relative_to(pile) for step in steps):  # a table may name any file
        pile = Path(os.path.commonpath([step.source.parent for step in steps]))
    top = sorting.out / SORTED
    rows = [
        (str(step.source.relative_to(pile)), str(step.target.relative_to(top)), *step[2:])
        for step in steps
    ]
    journal = {"format": 3, "how": sorting.how, "pile": str(pile), "steps": rows}
    write_whole(path, json.dumps(journal) + "\n")  # ASCII, for names that are not UTF-8


def undo_command(out: Path) -> str:
    """The command that undoes a sorting, as the user types it in this folder."""
    return f"semishot undo {shlex.quote(str(out))}"


def read_journal(out: Path, below: Path | None = None) -> Sorting | None:
    """The sorting of OUT, if there is one. All its files are below the pile or OUT/sorted.

    below: the folder where its files belong, for a pile that has another name now.
    """
    try:
        saved = from_json(_Journal, read_json(out / JOURNAL), JOURNAL)
        for path in (PurePath(name) for step in saved.steps for name in step[:2]):
            if path.is_absolute() or not path.name or ".." in path.parts or "\0" in str(path):
                raise InputError(f"{str(path)!r:.40} is not the name of a file in it")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except InputError as error:
        raise InputError(f"{out / JOURNAL} is damaged, or of another version ({error})") from error
    pile = Path(saved.pile)
    if below is not None:
        pile, new = real_path(pile), real_path(below)
        pile = pile if pile.is_relative_to(new) else new
    top = out / SORTED
    steps = (SortStep(pile / step[0], top / step[1], *step[2:]) for step in saved.steps)
    return Sorting(out, saved.how, pile, tuple(steps))


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
        for target, source in sorting.targets.items()
        if target.is_file()
        and real_path(target).is_relative_to(folder)
        and not os.path.lexists(source)
    }
