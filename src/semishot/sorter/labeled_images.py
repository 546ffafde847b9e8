"""The images that `classify` works on, their features, and the label of each, from --labeled and from
OUT/labels.sqlite."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from semishot.data.framing import is_drawing
from semishot.errors import InputError, counted, printable
from semishot.sorter.embedding import Rows, collect, read_image, read_images
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.sorter.encoders.image_encoder import ImageEncoder
from semishot.sorter.encoders.names import DEFAULT, open_encoder
from semishot.sorter.feature_files import feature_rows
from semishot.sorter.label_tables import corrections_in, from_table
from semishot.sorter.labels import SeenFile, open_store, status_of
from semishot.sorter.listing import STRANGER, Item, Listing, as_label, from_folders, to_unpack
from semishot.sorter.moving.journal import moved_files
from semishot.sorter.out_folder import DATABASE, EMBEDDINGS, PREDICTIONS, SCRATCH, SKIPPED
from semishot.sorter.requests import ClassifyRequest
from semishot.sorter.summary import DOUBTS_NAMED, first_few
from semishot.system.devices import check_device
from semishot.system.files import real_path, real_place
from semishot.system.folder_names import alike
from semishot.system.progress import Seconds

LOOKED_AT = 20
"""How many labeled images are checked for being drawings."""


def labeled_images(request: ClassifyRequest, seconds: Seconds) -> Rows:
    """List, read and encode the images, or take the features that are given; and label them."""
    out = request.out
    if request.with_features:
        files = [request.given, *([request.unlabeled] if request.unlabeled else [])]
        with seconds.part("images"):
            corrections = corrections_in(out / PREDICTIONS)
            rows = feature_rows(files, out / SCRATCH, request.labels, corrections)
        rows.notes = _notes(Listing(), rows.items)
        return rows
    check_device(request.device)
    with seconds.part("listing"):  # what is wrong with it is said before an encoder is loaded
        listing = list_images(request)
    encoder = open_encoder(request.encoder or DEFAULT, request.onnx, request.view)
    encoder = encoder.with_boxes(request.crop)
    names = features_of_names(encoder, request.names) if request.names is not None else {}
    cache = EmbeddingCache(request.cache or out / EMBEDDINGS, encoder.cached_as, encoder.features)
    with seconds.part("images"):
        read, skipped = read_images(listing.items, encoder, request.device, cache, seconds)
        labeled = _with_labels(request, listing, read)
        sources = [(item, cache, item.digest) for item in labeled]
        rows = collect(sources, encoder.features, out / SCRATCH)
    rows.encoder, rows.names, rows.thumbnail = encoder, names, cache.thumbnail
    rows.skipped[:0] = [*listing.skipped, *skipped]
    rows.notes = [*listing.notes, *encoder.notes, *_notes(listing, rows.items)]
    if request.encoder is None and _look_drawn(rows.items):
        rows.notes.append(
            "these look like small drawings: --encoder omniglot may do better than photos"
        )
    return rows


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
    if unlabeled and not unlabeled.is_dir() and (unlabeled.exists() or not moved):
        raise InputError(f"--unlabeled {unlabeled} is not a folder{to_unpack(unlabeled)}")
    apart = [out, *([request.cache] if request.cache else [])]
    listing = from_folders(None if is_table or is_store else labeled, pile, apart, moved)
    if is_table:
        listing = from_table(labeled, listing, moved)
    elif is_store and (request.labeled is not None or labeled.exists()):
        _add_answered(labeled, listing)
    labels = {item.label for item in listing.items} | {*listing.corrections.values()}
    if request.names is None and not labels - {None, STRANGER}:
        _check_answers(request)
    if not any(item.of_pile for item in listing.items):
        raise InputError(f"no images to sort in {unlabeled or labeled}")
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


def _given_labels(images: Iterable[Item]) -> tuple[dict[bytes, str], list[str]]:
    """The label that --labeled gives to each image by its first file there; notes on other labels."""
    given, notes = dict[bytes, tuple[str, str]](), list[str]()
    for item in images:
        if item.label is not None and not item.of_pile:
            label, shown = given.setdefault(item.digest, (item.label, item.shown))
            if label.casefold() != item.label.casefold():
                notes.append(
                    f"{printable(shown)} and {printable(item.shown)} are one image in two classes: it is "
                    f"taken for {label}"
                )
    notes = first_few(notes, DOUBTS_NAMED, "{} more images lie in two classes")
    return {digest: label for digest, (label, _) in given.items()}, notes


def _with_labels(request: ClassifyRequest, listing: Listing, images: Sequence[Item]) -> list[Item]:
    """Import --labeled into OUT/labels.sqlite, and give each image the label that is there; adds notes.

    A copy of a labeled image in the pile stays unlabeled here.
    """
    labels, notes = _given_labels(images)
    folder, name = request.given.parent, request.given.name
    own = name in (DATABASE, PREDICTIONS) and real_path(folder) == real_path(request.out)
    with closing(open_store(request.out)) as store:
        if name == DATABASE and not own:
            with closing(open_store(folder)) as other:
                labels = {d: label for d in other.images if (label := other.label_of(d))}
        corrections = listing.corrections
        if not own or not store.version:  # else it says what the store has said
            store.import_labels(labels)
            earlier = {i.shown: i.label for i in listing.items if i.of_pile and i.label}
            corrections = earlier | corrections
        numbers = store.numbers([item.digest for item in images])
        store.remember_files(
            (str(item.source), SeenFile(number, *status))
            for item, number in zip(images, numbers, strict=True)
            if item.path and (status := status_of(item.path))
        )
        digests, corrected = store.digests(), dict[bytes, str]()
        for shown, label in corrections.items():
            if seen := store.files.get(str(real_place(Path(shown)))):  # it may be unreadable now
                corrected[digests[seen.image]] = label
        store.correct(corrected)
        outside = {item.digest for item in images if not item.of_pile}
        labeled = []
        for item in images:
            copy = item.of_pile and item.digest in outside
            labeled.append(replace(item, label=None if copy else store.label_of(item.digest)))
        lost = len(store.state.answers.keys() - set(numbers))
    listing.notes += notes
    if lost:
        one = "labeled image is not there or cannot be read; its label stays"
        several = "labeled images are not there or cannot be read; their labels stay"
        listing.notes.append(f"{counted(lost, one, several)} in {request.out / DATABASE}")
    return labeled


def check_read(request: ClassifyRequest, items: Sequence[Item]) -> None:
    """There must be something to learn from, and something to sort."""
    labels, given = {item.label for item in items}, request.given
    why = f"{request.out / SKIPPED} says why"
    if request.names is None and not labels - {None, STRANGER}:
        if request.with_features:
            raise InputError(f"no row of {request.labels} has a class: label some of each")
        if given.name == PREDICTIONS:
            why += f" (the paths in {given} are relative to the folder where it was made)"
        raise InputError(f"no labeled image can be read; {why}")
    if request.with_features and None not in labels:
        raise InputError(
            f"every row of {given} has a label: pass --unlabeled, the features of the pile"
        )
    if not request.with_features and not any(item.of_pile for item in items):
        raise InputError(f"no image of the pile can be read; {why}")


def _notes(listing: Listing, items: Sequence[Item]) -> list[str]:
    """On corrections, on names of classes, on classes without images, and on copies."""
    notes, labels = [], {item.label for item in items if item.label is not None}
    corrected = [item.label for item in items if item.of_pile and item.label]
    if corrected:
        notes.append(f"{counted(len(corrected), 'correction is', 'corrections are')} used")
    if new := {*corrected} - {item.label for item in items if not item.of_pile} - {STRANGER}:
        notes.append(f"classes that only corrections name: {', '.join(sorted(new)[:10])}")
    for names in alike(labels):
        quoted = " and ".join(f"'{name}'" for name in names[:4])
        notes.append(
            f"{quoted} are {len(names)} classes whose names differ only in case, spaces, _ or -: if they are "
            "one class, give it one name"
        )
    read = {label.casefold() for label in labels} | {STRANGER}
    given = sorted({item.label for item in listing.items if item.label})
    unread = [label for label in given if label.casefold() not in read]
    notes += [f"class {label} has no readable image: left out" for label in unread]
    known = {item.digest for item in items if item.label is not None}
    pile = [item.digest for item in items if item.digest and item.label is None]
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
