"""The files of a pile: in its folder, in --labeled, sorted before, or left by `classify` in the same OUT."""

from dataclasses import dataclass, field
from pathlib import Path

from semishot.errors import InputError
from semishot.label.requests import LabelRequest
from semishot.sorter.corrections import SortedPile, corrected, from_predictions
from semishot.sorter.listing import Item, Listing, from_folders, to_unpack
from semishot.sorter.moved_pile import followed
from semishot.sorter.moving.journal import read_journal, trusted
from semishot.sorter.moving.sorted_files import find_sorted
from semishot.sorter.out_folder import PREDICTIONS
from semishot.system.files import real_path


def check_folders(request: LabelRequest) -> None:
    """Refuse folders that cannot be what they are given as, without looking at what is in them."""
    out, pile = request.folder, request.pile
    if not pile.is_dir():
        raise InputError(f"{pile} is not a folder{to_unpack(pile)}; it holds the images to label")
    inside = {real_path(folder) for folder in (pile, request.labeled) if folder is not None}
    if real_path(out) in inside:
        raise InputError(f"--out {out} holds your images: choose a folder of its own")


def list_files(request: LabelRequest) -> tuple[Listing, dict[str, Path]]:
    """The files of the pile and of --labeled, and where those lie that were moved by a sorting."""
    check_folders(request)
    apart = [request.folder, *([request.cache] if request.cache else [])]
    listing, moved = from_folders(request.labeled, [request.pile], apart), moved_files(request)
    listing.items.extend(Item(shown, None, target) for shown, target in moved.items())
    return listing, moved


def moved_files(request: LabelRequest) -> dict[str, Path]:
    """Where the files of the pile lie that were moved by a sorting."""
    pile, moved = request.pile, {}
    sorting = read_journal(request.folder, trusted(pile))
    if sorting is not None and sorting.how == "move":
        root = real_path(pile)
        for step in sorting.steps:
            target = sorting.target(step)
            if step.source.is_relative_to(root) and not step.source.exists() and target.exists():
                moved[str(pile / step.source.relative_to(root))] = target
    return moved


@dataclass(frozen=True)
class LeftByClassify:
    """Labels and corrections of `classify` in the same OUT, and where sorted files were moved by hand."""

    labeled: list[Item] = field(default_factory=list)
    """Labeled images that lie elsewhere."""
    corrections: dict[str, str] = field(default_factory=dict)
    by_hand: dict[str, Path] = field(default_factory=dict)
    """Sorted files that were moved by hand: where they are."""


def left_by_classify(request: LabelRequest, listing: Listing) -> LeftByClassify:
    left = LeftByClassify()
    out, listed = request.folder, {item.shown for item in listing.items}
    if (out / PREDICTIONS).exists():
        left.labeled.extend(
            item
            for item in from_predictions(out / PREDICTIONS).items
            if item.label and not item.of_pile and item.path and item.path.is_file()
            if item.shown not in listed
        )
    sorting = read_journal(out, trusted(request.pile))
    before = None
    if sorting is not None and sorting.done:
        before = followed(SortedPile(sorting, find_sorted(sorting)), request.pile, out)
    for item in corrected(listing.items, request.pile, out, before, answers=False):
        if item.correct:
            left.corrections[item.shown] = item.correct
        if item.home is not None and item.path is not None and item.shown not in left.by_hand:
            left.by_hand[item.shown] = item.path
    return left
