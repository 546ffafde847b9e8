"""A saved model and new images -> predictions, without the images it was fitted to."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from semishot.errors import InputError
from semishot.sorter.embedding import Rows, embed
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.sorter.encoders.image_encoder import ImageEncoder, load_encoder
from semishot.sorter.feature_files import gathered, read_features
from semishot.sorter.listing import Item, Skipped, from_folders
from semishot.sorter.out_folder import CLASSIFIER, SAVED_MODEL
from semishot.sorter.predictions import Prediction, predictions_of
from semishot.sorter.requests import PredictRequest
from semishot.system.devices import check_device
from semishot.system.progress import doing

if TYPE_CHECKING:  # it imports scipy
    from semishot.estimator.fitted_model import FittedModel


def saved_folder(given: Path) -> Path:
    """OUT/model, given that folder or OUT."""
    if not (given / CLASSIFIER).exists() and (given / SAVED_MODEL / CLASSIFIER).exists():
        return given / SAVED_MODEL
    return given


def read_saved_model(folder: Path) -> "tuple[FittedModel, ImageEncoder | None]":
    """Open the model that `semishot classify` left in OUT/model, given that folder or OUT."""
    from semishot.estimator.fitted_model import read_model

    folder = saved_folder(folder)
    encoder = load_encoder(folder)
    classifier = read_model(folder / CLASSIFIER)
    if encoder is not None and encoder.features != classifier.features:
        raise InputError(
            f"{folder} is damaged: its encoder gives {encoder.features:,} features, its classifier takes "
            f"{classifier.features:,}"
        )
    return classifier, encoder


def predict(request: PredictRequest) -> tuple[list[Prediction], list[Skipped]]:
    """Predict image files and folders of them, or .npy features if the model was given features."""
    if not request.images:
        raise InputError("give images, or folders of them")
    check_device(request.device)
    with doing("loading the model"):
        classifier, encoder = read_saved_model(request.model)
    if encoder is not None and encoder.cropped != (request.crop is not None):
        do = "pass --crop, its boxes" if encoder.cropped else "drop --crop"
        raise InputError(
            f"{request.model} was learned from {'boxes' if encoder.cropped else 'frames'}: {do}"
        )
    for path in request.images:
        if not path.exists():
            raise InputError(f"no file or folder {path}")
    # ignored: Windows does not delete a file while it is mapped
    with TemporaryDirectory(prefix="semishot-", ignore_cleanup_errors=True) as scratch:
        if encoder is None:
            rows = _given_features(request.images, classifier.features, Path(scratch))
        else:
            rows = _embedded(request, encoder.with_boxes(request.crop), Path(scratch))
        if not rows.items:
            why = "in " + ", ".join(str(path) for path in request.images[:4])
            if rows.skipped:
                why = f"({rows.skipped[0].shown}: {rows.skipped[0].reason})"
            raise InputError(f"no image to predict {why}")
        answers = classifier.predict(rows.features)
        return predictions_of(classifier, answers, rows.items), rows.skipped


def _embedded(request: PredictRequest, encoder: ImageEncoder, scratch: Path) -> Rows:
    listing = from_folders(None, request.images)
    cache = EmbeddingCache(request.cache or scratch, encoder.cached_as, encoder.features)
    rows = embed(listing.items, encoder, request.device, cache, scratch / "rows.npy")
    rows.skipped[:0] = listing.skipped
    return rows


def _given_features(paths: Sequence[Path], features: int, scratch: Path) -> Rows:
    for path in paths:
        if path.is_dir():
            raise InputError(
                f"{path} is a folder, but the model was made from features: it takes .npy files"
            )
    arrays = [(path, read_features(path)) for path in paths]
    for path, array in arrays:
        if array.shape[1] != features:
            raise InputError(
                f"{path} has {array.shape[1]:,} features in a row, the model takes {features:,}"
            )
    parts = [
        (array, [Item(f"{path.name}:{row}") for row in range(len(array))]) for path, array in arrays
    ]
    return gathered(parts, scratch / "rows.npy")
