"""Plan where each file of a pile goes: OUT/sorted/CLASS/NAME, under a name that is free."""

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from semishot.sorter.listing import STRANGER
from semishot.sorter.moving.journal import SORTED, Sorting, Step
from semishot.sorter.moving.sorted_files import SortedFile
from semishot.sorter.requests import How
from semishot.system.files import real_place
from semishot.system.folder_names import folded, folder_names

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


def plan(
    out: Path, how: How, wanted: Sequence[Wanted], before: Sequence[SortedFile] = ()
) -> Sorting:
    """A target for each file, not yet written as a journal.

    before: the files of the sorting that is in OUT, where they are now. Those that are not wanted, and
    those that lie in the right folder already, stay; those that are gone stay in the journal. Links to
    where a wanted file was are made anew.
    """
    names = class_folders(one.label for one in wanted)
    sources = [real_place(one.source) for one in wanted]
    named = {(source, one.digest) for source, one in zip(sources, wanted, strict=True)}
    earlier = {(old.step.source, old.step.digest): old for old in before}
    kept = [old.at_its_place() for key, old in earlier.items() if key not in named]
    links = [old for key, old in earlier.items() if key in named]
    stale = {old.path: old.led for old in links if old.path and old.led}
    alone = [replace(step, was=(step.folder, step.name)) for step in kept]
    taken = {(step.folder, folded(step.name)): 1 for step in kept}
    steps: list[Step] = []
    for source, one in zip(sources, wanted, strict=True):
        folder, there = names[one.label], earlier.pop((source, one.digest), None)
        at = there.path if there is not None and there.path not in stale else None
        if there is not None and at is not None and at.parent.name == folder:
            steps.append(there.at_its_place())
            continue
        name = _free_name(out / SORTED / folder, source.name, taken, stale)
        was = None if at is None else (at.parent.name, at.name)
        steps.append(Step(source, folder, name, one.digest, was))
    return Sorting(out, how, False, (*alone, *steps), tuple(stale.items()))


def class_folders(labels: Iterable[str]) -> dict[str, str]:
    """The folder of each class in OUT/sorted, and of strangers."""
    classes = {label for label in labels if label != STRANGER}
    return {STRANGER: STRANGER, **folder_names(classes, STRANGER)}


def _free_name(
    folder: Path, name: str, taken: dict[tuple[str, str], int], stale: Collection[Path]
) -> str:
    """The name, or name~2 and so on; `taken` counts how often a name was requested, `stale` will be gone."""
    path, found = Path(name), name
    while (folder.name, folded(found)) in taken or (
        folder / found not in stale and os.path.lexists(folder / found)
    ):
        number = taken[folder.name, folded(name)] = taken.get((folder.name, folded(name)), 1) + 1
        tail = f"~{number}{path.suffix}"
        room = max(1, LONGEST - len(os.fsencode(tail)))
        stem = os.fsencode(path.stem)
        found = (path.stem if len(stem) <= room else stem[:room].decode(errors="ignore")) + tail
    taken.setdefault((folder.name, folded(found)), 1)
    return found


def behind_link(path: Path, pile: Path | None) -> bool:
    """Whether a folder between the pile and its file is a link."""
    if pile is None or not path.is_relative_to(pile):
        return False
    between = len(path.parts) - len(pile.parts) - 1
    return any(folder.is_symlink() for folder in list(path.parents)[:between])
