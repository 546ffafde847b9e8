"""The journal of a sorting, OUT/undo.json: which file of the pile goes where."""

import json
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Annotated, Literal

from msgspec import Meta, Struct

from semishot.errors import InputError
from semishot.sorter.requests import How
from semishot.system.files import read_regular, real_path, write_whole
from semishot.system.structs import from_json

FORMAT = 2
SORTED, JOURNAL = "sorted", "undo.json"
MOST_BYTES = 2**29
"""The largest journal that is read, and written."""


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
    stale: tuple[tuple[Path, Path], ...] = ()
    """Links of an earlier sorting, and where they lead: the pile was there. Removed, and made anew."""

    def target(self, step: SortStep) -> Path:
        return self.out / SORTED / step.folder / step.name

    def targets(self) -> dict[Path, Path]:
        """The source of each file -> where it is when the sorting is complete."""
        return {step.source: self.target(step) for step in self.steps}

    def earlier(self, step: SortStep) -> Path | None:
        """Where a file that is sorted again has been until then."""
        return None if step.was is None else self.out / SORTED / step.was[0] / step.was[1]


class _Step(Struct, array_like=True, forbid_unknown_fields=True):
    source: str
    """Relative to the pile."""
    folder: str
    name: str
    digest: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    was: tuple[str, str] | None = None


class _Journal(Struct):
    """The fields of `undo.json`."""

    format: Literal[2]
    how: How
    done: bool
    pile: str
    steps: list[_Step]


def write_journal(sorting: Sorting) -> None:
    """Write OUT/undo.json, which can be read again: a larger one is refused."""
    pile = sorting.pile
    steps = [
        [str(s.source.relative_to(pile)), s.folder, s.name, s.digest, s.was] for s in sorting.steps
    ]
    about = {"format": FORMAT, "how": sorting.how, "done": sorting.done, "pile": str(pile)}
    text = json.dumps({**about, "steps": steps}, indent=1)  # ASCII, for names that are not UTF-8
    if len(text) > MOST_BYTES:
        raise InputError(
            f"{sorting.out / JOURNAL} would have {len(text):,} bytes for {len(steps):,} files, more than "
            f"{MOST_BYTES:,}: sort fewer files at a time, each part to its own --out"
        )
    write_whole(sorting.out / JOURNAL, text)


def undo_command(out: Path) -> str:
    """The command that undoes a sorting, as the user types it in this folder."""
    return f"semishot undo {shlex.quote(str(out))}"


def read_journal(out: Path, below: Path | None = None) -> Sorting | None:
    """The sorting of OUT, if there is one.

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
        steps = tuple(_step(pile, number, step) for number, step in enumerate(saved.steps))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged, or of another version ({error})") from error
    if below is not None:
        old, new = real_path(pile), real_path(below)
        if not old.is_relative_to(new):
            old = new
        steps = tuple(replace(s, source=old / s.source.relative_to(pile)) for s in steps)
        pile = old
    return Sorting(out, saved.how, saved.done, steps, pile)


def _step(pile: Path, number: int, saved: _Step) -> SortStep:
    """A step whose file can only be below the pile, or OUT/sorted/FOLDER/NAME."""
    relative = PurePath(saved.source)
    names = [*relative.parts, saved.folder, saved.name, *(saved.was or ())]
    for name in names or [""]:
        if name in ("", ".", "..") or {"/", os.sep} & set(name) or b"\0" in os.fsencode(name):
            raise InputError(f"steps[{number}] leads to {name!r:.40}, which is no name of a file")
    if not relative.parts:
        raise InputError(f"steps[{number}] names no file")
    return SortStep(pile / relative, saved.folder, saved.name, saved.digest, saved.was)
