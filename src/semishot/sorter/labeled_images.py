"""The images that `classify` works on, their features, and the label of each, from --labeled and from
OUT/labels.sqlite."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from semishot.data.framing import is_drawing
from semishot.errors import InputError, counted, printable
from semishot.sorter.embedding import (
    ImageDigest,
    Rows,
    embed,
    read_image,
)
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.sorter.encoders.encoder_options import DEFAULT
from semishot.sorter.encoders.image_encoder import ImageEncoder, open_encoder, with_boxes
from semishot.sorter.feature_files import FeatureFiles, feature_rows
from semishot.sorter.label_tables import corrections_in, from_table, is_predictions, read_table
from semishot.sorter.labels import DATABASE, SeenFile, open_store, status_of, stored_name
from semishot.sorter.listing import STRANGER, Item, Listing, as_label, check_pile, from_folders
from semishot.sorter.moving.journal import moved_files
from semishot.sorter.out_folder import EMBEDDINGS, PREDICTIONS, SCRATCH, SKIPPED
from semishot.sorter.requests import ClassifyRequest
from semishot.system.devices import check_device
from semishot.system.files import real_path, real_place
from semishot.system.folder_names import alike
from semishot.system.progress import Seconds

LOOKED_AT = 20
"""How many labeled images are checked for being drawings."""
NAMED = 10
"""How many images in two classes are named."""


@dataclass
class LabeledImages:
    """The labeled images, then the others, with features; and notes for the user."""

    rows: Rows
    encoder: ImageEncoder | None = None
    """None: features were given."""
    notes: list[str] = field(default_factory=list)
    absent: list[Item] = field(default_factory=list)
    """Corrections of files that could not be read: they stay in predictions.csv."""
    names: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    """Features of the names of classes."""


def labeled_images(request: ClassifyRequest, seconds: Seconds) -> LabeledImages:
    """List, read and encode the images, or take the features that are given; and label them."""
    scratch = request.out / SCRATCH
    if request.with_features:
        corrections = corrections_in(request.out / PREDICTIONS)
        given = FeatureFiles(request.given, request.labels, request.unlabeled, corrections)
        with seconds.part("images"):
            rows = feature_rows(given, scratch)
        return LabeledImages(rows, notes=_notes_on_labels(rows, []))
    check_device(request.device)
    with seconds.part("listing"):  # what is wrong with it is said before an encoder is loaded
        listing = list_images(request)
    encoder = open_encoder(request.encoder or DEFAULT, request.onnx, request.view)
    encoder = with_boxes(encoder, request.crop)
    names = features_of_names(encoder, request.names) if request.names is not None else {}
    notes = listing.notes

    def arranged(images: list[ImageDigest]) -> list[ImageDigest]:
        labeled = _with_labels(request, images, notes)
        return sorted(labeled, key=lambda image: image[0].label is None)  # labeled ones first

    folder = request.cache or request.out / EMBEDDINGS
    cache = EmbeddingCache(folder, encoder.cached_as, encoder.features)
    with seconds.part("images"):
        rows = embed(listing.items, encoder, request.device, cache, scratch, arranged)
    rows.skipped[:0] = listing.skipped
    seconds.of.update(rows.seconds)
    read = {item.shown for item in rows.items}
    absent = [
        replace(item, label=item.correction, correct=item.correction)
        for item in listing.items
        if item.correction and item.shown not in read
    ]
    notes += [*_notes_on_labels(rows, absent), *encoder.notes, *_notes_on_files(listing, rows)]
    if request.encoder is None and _look_drawn(rows.items):
        notes.append("these look like small drawings: --encoder omniglot may do better than photos")
    return LabeledImages(rows, encoder, notes, absent, names)


def features_of_names(encoder: ImageEncoder, names: str) -> dict[str, NDArray[np.float32]]:
    """Names of classes, separated by commas -> their features."""
    split = [as_label(name.strip()) for name in names.split(",") if name.strip()]
    if not split or len({name.casefold() for name in split}) < len(split) or STRANGER in split:
        raise InputError(
            f"--names must be different names of classes, separated by commas, not {names!r:.100}"
        )
    if encoder.embed_names is None:
        raise InputError(
            f"{encoder.name} does not know words: names need --encoder clip-b32, siglip-base or another "
            "of the hub that was trained with texts"
        )
    return dict(zip(split, encoder.embed_names(split), strict=True))


def list_images(request: ClassifyRequest) -> Listing:
    """The labeled images, then those of the pile, where they are now."""
    labeled, unlabeled, out = request.given, request.unlabeled, request.out
    names_alone = request.labeled is None
    pile = [unlabeled] if unlabeled is not None else []
    if real_path(out) in {real_path(folder) for folder in (labeled, *pile)}:
        raise InputError(f"--out {out} holds your images: choose a folder of its own")
    table = out / PREDICTIONS
    if real_path(labeled) != real_path(table) and (count := len(corrections_in(table))):
        raise InputError(
            f"{table} has {counted(count, 'correction')}: pass --labeled {table} to use them, or delete it"
        )
    moved = moved_files(out)
    if moved:
        pile = [folder for folder in pile if folder.exists()]  # all of it may have been moved
    apart = [out, *([request.cache] if request.cache else [])]
    if labeled.suffix.lower() == ".csv":
        listing = _from_csv(labeled, _listed_pile(pile, apart))
    elif unlabeled is None:
        if names_alone:
            raise InputError("--names need --unlabeled, the folder of the pile")
        holds = "holds answers" if labeled.name == DATABASE else "is a folder"
        raise InputError(f"--labeled {labeled} {holds}: pass --unlabeled, the folder of the pile")
    elif labeled.name == DATABASE:
        listing = _listed_pile(pile, apart)
        if labeled.exists() or not names_alone:
            listing = _from_store(labeled, listing)
    else:
        listing = from_folders(labeled, pile, apart)
    if moved:
        listing.items = _where_they_are(listing.items, unlabeled, moved)
    labels = ({item.label, item.correct} - {None, "", STRANGER} for item in listing.items)
    if request.names is None and not any(labels):
        _check_answers(request)
    if not any(item.of_pile for item in listing.items):
        raise InputError(f"no images to sort in {unlabeled or labeled}")
    return listing


def _listed_pile(pile: Sequence[Path], apart: Sequence[Path]) -> Listing:
    for folder in pile:
        check_pile(folder)
    return from_folders(None, pile, apart)


def _check_answers(request: ClassifyRequest) -> None:
    """Without labels in --labeled there must be answers of `semishot label`."""
    labeled = request.given
    if (request.out / DATABASE).exists():
        with closing(open_store(request.out)) as store:
            if any(store.state.answers.values()):
                return
    if labeled.suffix.lower() == ".csv":
        raise InputError(f"no row of {labeled} has a class: write some into its column label")
    if labeled.name == DATABASE:
        raise InputError(f"no answer in {labeled}: name some classes in `semishot label`")
    raise InputError(f"no labeled images in {labeled}; it holds one folder of images per class")


def _from_csv(path: Path, pile: Listing) -> Listing:
    """The images of a table, or of predictions.csv, and those of the pile that it does not name."""
    table = read_table(path)
    listing, predicted = from_table(table), is_predictions(table)
    # a labeled row of a table may be of the pile, too, and is sorted with it
    named = [item.path for item in listing.items if item.of_pile or predicted]
    known = {real_path(each) for each in named if each}
    listing.items += [i for i in pile.items if i.path and real_path(i.path) not in known]
    listing.skipped += pile.skipped
    return listing


def _from_store(path: Path, listing: Listing) -> Listing:
    """The pile, and labeled images that lie elsewhere, where `label` or `classify` have seen them."""
    if not path.is_file():
        raise InputError(f"--labeled {path} is not a file; `semishot label` keeps answers there")
    listed = {item.source for item in listing.items}
    with closing(open_store(path.parent)) as store:
        begun_in = Path(store.about("folder") or ".")
        for name, seen in store.files.items():
            path_now = real_place(begun_in / name)
            if seen.image in store.state.answers and path_now not in listed and path_now.is_file():
                listing.items.insert(0, Item(str(path_now), None, path_now))
    return listing


def _where_they_are(
    items: Iterable[Item], unlabeled: Path | None, moved: dict[Path, Path]
) -> list[Item]:
    """Labeled items, then the pile as if it were one folder again: with what a sorting has moved."""
    here = []
    for item in items:
        source = item.source
        if source in moved and item.path is not None and not item.path.exists():
            item = replace(item, path=moved.pop(source), home=source)
        here.append(item)
    if unlabeled is not None:
        root = real_path(unlabeled)
        for source, path in moved.items():
            if source.is_relative_to(root):
                shown = str(unlabeled / source.relative_to(root))
                here.append(Item(shown, None, path, of_pile=True, home=source))
    return sorted(here, key=lambda i: (i.of_pile, Path(i.shown).parts if i.of_pile else ()))


def _with_labels(
    request: ClassifyRequest, images: Sequence[ImageDigest], notes: list[str]
) -> list[ImageDigest]:
    """Import --labeled into OUT/labels.sqlite, and give each image the label that is there; adds notes.

    A copy of a labeled image in the pile stays unlabeled here.
    """
    given: dict[bytes, set[str]] = {}
    for item, digest in images:
        if not item.of_pile:
            given.setdefault(digest, set()).update([item.label] if item.label else [])
    with closing(open_store(request.out)) as store:
        refused: dict[str, str] = {}
        if request.given.name != DATABASE:
            known = {digest: min(labels) for digest, labels in given.items() if len(labels) == 1}
            refused = store.import_labels(known)
        store.numbers([digest for _, digest in images])
        store.remember_files(
            (str(item.source), SeenFile(store.images[digest], *status))
            for item, digest in images
            if item.path and (status := status_of(item.path))
        )
        refused |= store.correct({d: item.correction for item, d in images if item.correction})
        names = {name for labels in given.values() for name in labels} - {STRANGER, *refused}
        spelled = {stored_name(name).casefold(): name for name in sorted(names)}

        def label_of(item: Item, digest: bytes) -> str | None:
            if item.of_pile and digest in given:
                return None
            if not item.of_pile and (len(given[digest]) > 1 or item.label in refused):
                return item.label
            stored = store.label_of(digest)
            if stored is None:
                return None
            written = item.correction or item.label
            if written in names and stored_name(str(written)).casefold() == stored.casefold():
                return written  # two classes may differ in case only
            return spelled.get(stored.casefold(), stored)

        labeled = [(replace(i, label=label_of(i, d), correct=""), d) for i, d in images]
        lost = store.state.answers.keys() - {store.images.get(digest) for _, digest in images}
    notes += [f"label {printable(label)} is not used: {why}" for label, why in refused.items()]
    if lost:
        what = counted(
            len(lost),
            "labeled image is not there or cannot be read; its label stays",
            "labeled images are not there or cannot be read; their labels stay",
        )
        notes.append(f"{what} in {request.out / DATABASE}")
    return labeled


def check_read(request: ClassifyRequest, rows: Rows) -> None:
    """There must be something to learn from, and something to sort."""
    labels = [item.label for item in rows.items]
    why = f"{request.out / SKIPPED} says why"
    if request.names is None and all(label in (None, STRANGER) for label in labels):
        if request.with_features:
            raise InputError(f"no row of {request.labels} has a class: label some of each")
        if request.given.name == PREDICTIONS:
            why += f" (the paths in {request.given} are relative to the folder where it was made)"
        raise InputError(f"no labeled image can be read; {why}")
    if None not in labels and request.with_features:
        raise InputError(
            f"every row of {request.given} has a label: pass --unlabeled, the features of the pile"
        )
    if not request.with_features and not any(item.of_pile for item in rows.items):
        raise InputError(f"no image of the pile can be read; {why}")


def known_labels(rows: Rows) -> dict[bytes, str]:
    """The digest of each labeled image that lies in one class only -> its label."""
    copies = _copies(rows).items()
    return {digest: str(own[0].label) for digest, own in copies if len({i.label for i in own}) == 1}


def _copies(rows: Rows) -> dict[bytes, list[Item]]:
    """The labeled images by digest."""
    copies: dict[bytes, list[Item]] = {}
    for item, digest in zip(rows.items, rows.digests, strict=True):
        if digest and item.label is not None:
            copies.setdefault(digest, []).append(item)
    return copies


def _notes_on_labels(rows: Rows, absent: Sequence[Item]) -> list[str]:
    """How many images of the pile have a label, and which classes only they name."""
    items, notes = rows.items, []
    corrected = [str(item.label) for item in items if item.of_pile and item.label]
    if corrected:
        notes.append(f"{counted(len(corrected), 'correction is', 'corrections are')} used")
    named = {item.label for item in items if not item.of_pile}
    if new := sorted({*corrected} - {*named, STRANGER}):
        shown = ", ".join(printable(name) for name in new[:10])
        notes.append(f"classes that only corrections name: {shown}")
    if absent:
        corrections = counted(len(absent), "correction is of a file", "corrections are of files")
        notes.append(
            f"{corrections} not there or not readable, such as {printable(absent[0].shown)}: kept in "
            f"{PREDICTIONS}"
        )
    for names in alike(str(item.label) for item in items if item.label is not None):
        quoted = " and ".join(f"'{printable(name)}'" for name in names[:4])
        notes.append(
            f"{quoted} are {len(names)} classes whose names differ only in case, spaces or the encoding of "
            "letters: if they are one class, give it one name"
        )
    return notes


def _notes_on_files(listing: Listing, rows: Rows) -> list[str]:
    """Classes without images, images in two classes, and copies."""
    named = {item.label for item in listing.items} - {None, STRANGER}
    unread = sorted(str(label) for label in named - {item.label for item in rows.items})
    notes = [f"class {printable(label)} has no readable image: left out" for label in unread]
    torn = [items for items in _copies(rows).values() if len({item.label for item in items}) > 1]
    for items in torn[:NAMED]:
        paths = " and ".join(printable(item.shown) for item in items[:4])
        notes.append(f"{paths} are one image in two classes")
    if len(torn) > NAMED:
        notes.append(f"{len(torn) - NAMED:,} more images lie in two classes")
    known = known_labels(rows)
    pile = [d for item, d in zip(rows.items, rows.digests, strict=True) if item.label is None]
    if same := sum(digest in known for digest in pile):
        one = "of the pile is a copy of a labeled image, and takes its label"
        several = "of the pile are copies of labeled images, and take their labels"
        notes.append(counted(same, one, several))
    if twice := len(pile) - len(set(pile)):
        several = "of the pile are copies of others in it"
        notes.append(counted(twice, "of the pile is a copy of another in it", several))
    return notes


def _look_drawn(items: Sequence[Item]) -> bool:
    paths = [item.path for item in items if item.label is not None and item.path][:LOOKED_AT]
    try:
        return bool(paths) and all(is_drawing(read_image(path), str(path)) for path in paths)
    except InputError:  # it has changed meanwhile: give no hint
        return False
