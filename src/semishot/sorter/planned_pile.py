"""Which files of a pile are sorted, by what was learned of them, and which stay where they are."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semishot.errors import counted
from semishot.sorter.corrections import SortedPile
from semishot.sorter.moving.journal import Sorting, check_undoable
from semishot.sorter.moving.plan_files import Wanted, behind_link, plan
from semishot.sorter.requests import ClassifyRequest

if TYPE_CHECKING:  # it imports torch
    from semishot.sorter.fitted_pile import FittedPile


@dataclass(frozen=True)
class Planned:
    """Where the files of the pile go, and which of them stay where they are."""

    sorting: Sorting
    notes: list[str]
    """What stays, by rule."""


def plan_pile(request: ClassifyRequest, fitted: "FittedPile", before: SortedPile | None) -> Planned:
    """Where each file of the pile goes. The target of a link is not moved."""
    assert request.apply is not None
    how, notes = request.apply, []
    wanted, seen, behind_links = [], set(), 0
    for place, item in enumerate(fitted.rows.items):
        if not item.of_pile:
            continue
        source = item.source
        assert item.path is not None
        assert source is not None
        if source in seen:
            continue
        seen.add(source)
        if how == "move" and item.home is None and item.path.is_symlink():
            notes.append(f"{item.path}: a link, left where it is")
            continue
        if how == "move" and item.home is None and behind_link(item.path, request.unlabeled):
            behind_links += 1
            continue
        wanted.append(Wanted(source, fitted.label_of(place), fitted.rows.digests[place].hex()))
    if behind_links:
        notes.append(f"{counted(behind_links, 'image')} in linked folders, left where they are")
    files = before.files if before is not None else []
    planned = {(one.source, one.digest) for one in wanted}
    gone = [f for f in files if f.path is None and (f.step.source, f.step.digest) not in planned]
    if gone:
        one, several = "file sorted before is gone, or has", "files sorted before are gone, or have"
        notes.append(f"{counted(len(gone), one, several)} changed")
    sorting = plan(request.out, how, wanted, files)
    check_undoable(sorting, request.unlabeled)
    return Planned(sorting, notes)
