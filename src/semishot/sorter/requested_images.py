"""The images that a request of `classify` names: labeled ones, the pile, and what was corrected since."""

from collections.abc import Sequence
from pathlib import Path

from semishot.errors import InputError
from semishot.sorter.correction_notes import note_on_answers
from semishot.sorter.corrections import (
    SortedPile,
    absent_corrections,
    check_labels,
    corrected,
    from_answers,
    from_predictions,
    in_order,
    is_predictions,
)
from semishot.sorter.embedding import Rows
from semishot.sorter.labels_database import DATABASE
from semishot.sorter.listing import (
    STRANGER,
    Listing,
    from_folders,
    from_table,
    read_table,
    to_unpack,
)
from semishot.sorter.out_folder import PREDICTIONS, SKIPPED
from semishot.sorter.requests import ClassifyRequest
from semishot.system.files import real_path


def requested_images(request: ClassifyRequest, before: SortedPile | None) -> Listing:
    """The images, their labels, and what the user has corrected since the last run."""
    labeled, unlabeled = request.labeled, request.unlabeled
    pile = [unlabeled] if unlabeled is not None else []
    if real_path(request.out) in {real_path(folder) for folder in (labeled, *pile)}:
        raise InputError(f"--out {request.out} holds your images: choose a folder of its own")
    if before is not None:
        pile = [folder for folder in pile if folder.exists()]  # all of it may have been moved
    apart = [request.out, *([request.cache] if request.cache else [])]
    if labeled.suffix.lower() == ".csv":
        listing = _from_csv(labeled, pile, apart)
    elif labeled.name == DATABASE and unlabeled is None:
        raise InputError(
            f"--labeled {labeled} holds answers: pass --unlabeled, the folder of the pile"
        )
    elif labeled.name == DATABASE:
        listing = from_answers(labeled, from_folders(None, pile, apart))
    elif unlabeled is None:
        raise InputError(
            f"--labeled {labeled} is a folder: pass --unlabeled, the folder of the pile"
        )
    else:
        listing = from_folders(labeled, pile, apart)
    check_labels(request.out, {item.label for item in listing.items if item.label})
    listing.items = in_order(corrected(listing.items, unlabeled, request.out, before))
    listing.absent = absent_corrections(listing.items, request.out, before)
    listing.notes += note_on_answers(listing.items, request.out)
    known_images = sum(item.label not in (None, STRANGER) for item in listing.items)
    if not known_images and labeled.suffix.lower() == ".csv":
        raise InputError(_no_labels(labeled))
    if not known_images and labeled.name == DATABASE:
        raise InputError(
            f"no answer in {labeled} is about a file that is there: name some classes in `semishot label`, "
            "or start it once on the pile where it is now"
        )
    if not known_images:
        raise InputError(f"no labeled images in {labeled}; it holds one folder of images per class")
    if not any(item.of_pile for item in listing.items):
        raise InputError(f"no images to sort in {unlabeled or labeled}")
    return listing


def _from_csv(table: Path, pile: Sequence[Path], apart: Sequence[Path]) -> Listing:
    """The images of a table, or of predictions.csv, and those of the pile that it does not name."""
    for folder in pile:
        if not folder.is_dir():
            raise InputError(f"--unlabeled {folder} is not a folder{to_unpack(folder)}")
    predicted = is_predictions(read_table(table), table)
    listing = from_predictions(table) if predicted else from_table(table)
    known = {real_path(item.path) for item in listing.items if item.path} if predicted else set()
    more = from_folders(None, pile, apart)
    listing.items += [one for one in more.items if one.path and real_path(one.path) not in known]
    listing.skipped += more.skipped
    return listing


def _no_labels(table: Path) -> str:
    if not read_table(table).rows:
        return f"{table} has no rows below its first line: each names an image and its class"
    return f"no row of {table} has a class: write some into its column label"


def check_read(request: ClassifyRequest, rows: Rows) -> None:
    """There must be something to learn from, and something to sort."""
    labels = [item.label for item in rows.items]
    why = f"{request.out / SKIPPED} says why"
    if all(label in (None, STRANGER) for label in labels):
        if request.with_features:
            raise InputError(f"no row of {request.labels} has a class: label some of each")
        if request.labeled.name == PREDICTIONS:
            why += f" (the paths in {request.labeled} are relative to the folder where it was made)"
        raise InputError(f"no labeled image can be read; {why}")
    if None not in labels and request.with_features:
        raise InputError(
            f"every row of {request.labeled} has a label: pass --unlabeled, the features of the pile"
        )
    if not request.with_features and not any(item.of_pile for item in rows.items):
        raise InputError(f"no image of the pile can be read; {why}")
