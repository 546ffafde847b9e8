"""A saved model and new images -> predictions, without the images it has learned from."""

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from semishot.errors import InputError
from semishot.estimator.classifier import PrototypeClassifier
from semishot.sorter.classify import judged
from semishot.sorter.embedding import Rows, embed, in_this_process
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.sorter.encoders import ImageEncoder, load_encoder
from semishot.sorter.feature_files import gathered, read_features
from semishot.sorter.listing import Item, Skipped, from_folders
from semishot.sorter.out_folder import CLASSIFIER, MODEL
from semishot.sorter.predictions import Prediction
from semishot.system.devices import pick_device

__all__ = ["open_model", "predict"]


def open_model(folder: Path) -> tuple[PrototypeClassifier, ImageEncoder | None]:
    """What `semishot classify` has left in OUT/model; OUT will do."""
    if not (folder / CLASSIFIER).exists() and (folder / MODEL / CLASSIFIER).exists():
        folder = folder / MODEL
    encoder = load_encoder(folder)
    classifier = PrototypeClassifier.load(folder / CLASSIFIER)
    takes = classifier.n_features_in_
    if encoder is not None and encoder.features != takes:
        raise InputError(
            f"{folder} is damaged: its encoder gives {encoder.features:,} features, its classifier takes "
            f"{takes:,}"
        )
    return classifier, encoder


def predict(
    model: Path, images: Sequence[Path], cache: Path | None = None, device: str = "auto"
) -> tuple[list[Prediction], list[Skipped]]:
    """Of image files and folders of them, or of .npy features if the model has learned from such."""
    classifier, encoder = open_model(model)
    for path in images:
        if not path.exists():
            raise InputError(f"no file or folder {path}")
    with tempfile.TemporaryDirectory(prefix="semishot-") as scratch:
        rows = _rows(classifier, encoder, images, cache, Path(scratch), device)
        if not rows.items:
            reason = (
                f"{rows.skipped[0].shown}: {rows.skipped[0].reason}" if rows.skipped else "none"
            )
            raise InputError(f"no image to predict ({reason})")
        return judged(classifier, rows.features, rows.items), rows.skipped


def _rows(
    classifier: PrototypeClassifier,
    encoder: ImageEncoder | None,
    images: Sequence[Path],
    cache: Path | None,
    scratch: Path,
    device: str,
) -> Rows:
    if encoder is not None:
        listing = from_folders(None, images)
        kept = EmbeddingCache(cache or scratch, encoder.identity, encoder.features)
        here = partial(in_this_process, pick_device(device))
        rows = embed(listing.items, encoder, kept, scratch / "rows.npy", here)
        rows.skipped[:0] = listing.skipped
        return rows
    arrays = [(path, read_features(path)) for path in images]
    for path, array in arrays:
        if array.shape[1] != classifier.n_features_in_:
            raise InputError(
                f"{path} has {array.shape[1]:,} features in a row, the model takes "
                f"{classifier.n_features_in_:,}"
            )
    parts = [
        (array, [Item(f"{path.name}:{row}") for row in range(len(array))], range(len(array)))
        for path, array in arrays
    ]
    return gathered(parts, scratch / "rows.npy")
