"""A pile moved after it was copied or linked: each copy belongs to the file of its name and content."""

import os
from dataclasses import replace
from pathlib import Path

from semishot.data.walk_folders import walk
from semishot.errors import InputError
from semishot.sorter.corrections import SortedPile
from semishot.system.files import real_path, real_place
from semishot.system.transfer import digest_of


def followed(before: SortedPile, pile: Path | None, out: Path) -> SortedPile:
    """The sorting with the originals of its copies and links where they are now, if they were moved.

    A link leads to the old place until the pile is sorted again. A moved file is its own original.
    """
    if before.sorting.how == "move" or pile is None or not pile.is_dir():
        return before
    if all(os.path.lexists(one.step.source) for one in before.files):
        return before
    known = {one.step.source for one in before.files}
    by_name: dict[str, list[Path]] = {}
    for entry in walk(pile, {real_path(out)} - {real_path(pile)}):
        place = real_place(entry.path)
        if not entry.problem and place not in known:
            by_name.setdefault(place.name, []).append(place)
    files, moved = [], {}
    for one in before.files:
        source = one.step.source
        if not os.path.lexists(source) and (
            now := _same(by_name.get(source.name, []), one.step.digest)
        ):
            moved[source] = now
            led = source if before.sorting.how == "link" and one.path is not None else None
            one = replace(one, step=replace(one.step, source=now), led=led)
        files.append(one)
    return replace(before, files=files, moved=moved)


def _same(places: list[Path], digest: str) -> Path | None:
    """Take the first file with this content out of the list."""
    for place in places:
        try:
            if digest_of(place) == digest:
                places.remove(place)
                return place
        except (OSError, InputError):  # it cannot be read, or is not a regular file
            continue
    return None
