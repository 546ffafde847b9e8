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
from semishot.sorter.embedding import ImageDigest, Rows, embed, read_image
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.sorter.encoders.image_encoder import ImageEncoder
from semishot.sorter.encoders.names import DEFAULT, open_encoder
from semishot.sorter.feature_files import FeatureFiles, feature_rows
from semishot.sorter.label_tables import corrections_in, from_table, is_predictions, read_table
from semishot.sorter.labels import DATABASE, LabelStore, SeenFile, open_store, status_of
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
        return LabeledImages(rows, notes=_notes(Listing(), rows))
    check_device(request.device)
    with seconds.part("listing"):  # what is wrong with it is said before an encoder is loaded
        listing = list_images(request)
    encoder = open_encoder(request.encoder or DEFAULT, request.onnx, request.view)
    encoder = encoder.with_boxes(request.crop)
    names = features_of_names(encoder, request.names) if request.names is not None else {}

    def arranged(images: list[ImageDigest]) -> list[ImageDigest]:
        labeled = _with_labels(request, listing, images)
        return sorted(labeled, key=lambda image: image[0].label is None)  # labeled ones first

    folder = request.cache or request.out / EMBEDDINGS
    cache = EmbeddingCache(folder, encoder.cached_as, encoder.features)
    with seconds.part("images"):
        rows = embed(listing.items, encoder, request.device, cache, scratch, arranged)
    rows.skipped[:0] = listing.skipped
    seconds.of.update(rows.seconds)
    notes = [*listing.notes, *encoder.notes, *_notes(listing, rows)]
    if request.encoder is None and _look_drawn(rows.items):
        notes.append("these look like small drawings: --encoder omniglot may do better than photos")
    return LabeledImages(rows, encoder, notes, names)


def features_of_names(encoder: ImageEncoder, names: str) -> dict[str, NDArray[np.float32]]:
    """Names of classes, separated by commas -> their features."""
    split = [as_label(name) for name in names.split(",") if name.strip()]
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


# Which files, and what --labeled says of them


def list_images(request: ClassifyRequest) -> Listing:
    """The labeled images, then those of the pile, where they are now."""
    labeled, unlabeled, out = request.given, request.unlabeled, request.out
    is_table, is_store = labeled.suffix.lower() == ".csv", labeled.name == DATABASE
    if unlabeled is None and not is_table:
        raise InputError("pass --unlabeled, the folder of the pile")
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
    for folder in pile:
        check_pile(folder)
    apart = [out, *([request.cache] if request.cache else [])]
    listing = from_folders(None if is_table or is_store else labeled, pile, apart)
    if is_table:
        listing = _from_csv(labeled, listing)
    elif is_store and (request.labeled is not None or labeled.exists()):
        _add_answered(labeled, listing)
    if moved:
        listing.items = _where_they_are(listing.items, unlabeled, moved)
    labels = ({item.label, item.correct} - {None, "", STRANGER} for item in listing.items)
    if request.names is None and not any(labels):
        _check_answers(request)
    if not any(item.of_pile for item in listing.items):
        raise InputError(f"no images to sort in {unlabeled or labeled}")
    return listing


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


def _add_answered(path: Path, listing: Listing) -> None:
    """Add labeled images that lie outside of the pile, where `label` or `classify` have seen them."""
    if not path.is_file():
        raise InputError(f"--labeled {path} is not a file; `semishot label` keeps answers there")
    listed = {item.source for item in listing.items}
    with closing(open_store(path.parent)) as store:
        begun_in = Path(store.about("folder") or ".")
        for name, seen in store.files.items():
            path_now = real_place(begun_in / name)
            if seen.image in store.state.answers and path_now not in listed and path_now.is_file():
                listing.items.insert(0, Item(str(path_now), None, path_now))


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


def _check_answers(request: ClassifyRequest) -> None:
    """Without labels in --labeled there must be answers of `semishot label`."""
    labeled = request.given
    for out in (request.out, *([labeled.parent] if labeled.name == DATABASE else [])):
        if (out / DATABASE).exists():
            with closing(open_store(out)) as store:
                if any(store.state.answers.values()):
                    return
    if labeled.suffix.lower() == ".csv":
        raise InputError(f"no row of {labeled} has a class: write some into its column label")
    if labeled.name == DATABASE:
        raise InputError(f"no answer in {labeled}: name some classes in `semishot label`")
    raise InputError(f"no labeled images in {labeled}; it holds one folder of images per class")


# The labels of images, by way of OUT/labels.sqlite


def _with_labels(
    request: ClassifyRequest, listing: Listing, images: Sequence[ImageDigest]
) -> list[ImageDigest]:
    """Import --labeled into OUT/labels.sqlite, and give each image the label that is there; adds notes.

    A copy of a labeled image in the pile stays unlabeled here.
    """
    labeled: dict[bytes, Item] = {}
    torn = []
    for item, digest in images:
        if not item.of_pile:
            first = labeled.setdefault(digest, item)
            if str(first.label).casefold() != str(item.label).casefold():
                torn.append((first, item))
    given = {digest: item.label for digest, item in labeled.items()}
    folder, name = request.given.parent, request.given.name
    own = name in (DATABASE, PREDICTIONS) and real_path(folder) == real_path(request.out)
    with closing(open_store(request.out)) as store:
        if name == DATABASE and not own:
            with closing(open_store(folder)) as other:
                given = {digest: other.label_of(digest) for digest in other.images}
        if not own or not store.version:  # else it says what the store has said
            store.import_labels({digest: label for digest, label in given.items() if label})
        store.numbers([digest for _, digest in images])
        store.remember_files(
            (str(item.source), SeenFile(store.images[digest], *status))
            for item, digest in images
            if item.path and (status := status_of(item.path))
        )
        store.correct(_corrections(listing, images, store))

        def label_of(item: Item, digest: bytes) -> str | None:
            return None if item.of_pile and digest in labeled else store.label_of(digest)

        done = [(replace(i, label=label_of(i, d), correct=""), d) for i, d in images]
        lost = store.state.answers.keys() - {store.images.get(digest) for _, digest in images}
    listing.notes += [
        f"{printable(first.shown)} and {printable(other.shown)} are one image in two classes: it is taken "
        f"for {first.label}"
        for first, other in torn[:NAMED]
    ]
    if len(torn) > NAMED:
        listing.notes.append(f"{len(torn) - NAMED:,} more images lie in two classes")
    if lost:
        one = "labeled image is not there or cannot be read; its label stays"
        several = "labeled images are not there or cannot be read; their labels stay"
        listing.notes.append(f"{counted(len(lost), one, several)} in {request.out / DATABASE}")
    return done


def _corrections(
    listing: Listing, images: Sequence[ImageDigest], store: LabelStore
) -> dict[bytes, str]:
    """What a predictions.csv corrects; of files that cannot be read, by what they held before."""
    digests, read = store.digests(), {item.shown: digest for item, digest in images}
    corrected = {}
    for item in listing.items:
        if item.correction:
            seen = store.files.get(str(item.source))
            digest = read.get(item.shown) or (digests[seen.image] if seen else b"")
            if digest:
                corrected[digest] = item.correction
    return corrected


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
    """The digest of each labeled image -> its label."""
    pairs = zip(rows.items, rows.digests, strict=True)
    return {digest: item.label for item, digest in pairs if digest and item.label is not None}


def _notes(listing: Listing, rows: Rows) -> list[str]:
    """On corrections, on names of classes, on classes without images, and on copies."""
    items, notes = rows.items, []
    corrected = [str(item.label) for item in items if item.of_pile and item.label]
    if corrected:
        notes.append(f"{counted(len(corrected), 'correction is', 'corrections are')} used")
    named = {item.label for item in items if not item.of_pile}
    if new := sorted({*corrected} - {*named, STRANGER}):
        notes.append(f"classes that only corrections name: {', '.join(new[:10])}")
    for names in alike(str(item.label) for item in items if item.label is not None):
        quoted = " and ".join(f"'{name}'" for name in names[:4])
        notes.append(
            f"{quoted} are {len(names)} classes whose names differ only in case, spaces, _ or -: if they are "
            "one class, give it one name"
        )
    read = {str(item.label).casefold() for item in items}
    given = sorted({item.label for item in listing.items if item.label} - {STRANGER})
    unread = [label for label in given if label.casefold() not in read]
    notes += [f"class {label} has no readable image: left out" for label in unread]
    known = known_labels(rows)
    pairs = zip(items, rows.digests, strict=True)
    pile = [digest for item, digest in pairs if digest and item.label is None]
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
