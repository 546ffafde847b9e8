"""A saved model and new images -> predictions, without the images it was fitted to."""

from pathlib import Path
from tempfile import TemporaryDirectory

from semishot.errors import InputError
from semishot.sorter.embedding import Rows, collect, read_images
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.sorter.encoders.image_encoder import ImageEncoder
from semishot.sorter.feature_files import feature_rows
from semishot.sorter.listing import Skipped, from_folders
from semishot.sorter.out_folder import read_saved_model
from semishot.sorter.predictions import Prediction, predictions_of
from semishot.sorter.requests import PredictRequest
from semishot.system.devices import check_device
from semishot.system.progress import doing


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
    with TemporaryDirectory(prefix="semishot-", ignore_cleanup_errors=True) as folder:
        rows = _rows(request, encoder, classifier.features, Path(folder))
        if not rows.items:
            why = "in " + ", ".join(str(path) for path in request.images[:4])
            if rows.skipped:
                why = f"({rows.skipped[0].shown}: {rows.skipped[0].reason})"
            raise InputError(f"no image to predict {why}")
        answers = classifier.predict(rows.features).take(rows.row_of)
        return predictions_of(classifier, answers, rows.items), rows.skipped


def _rows(
    request: PredictRequest, encoder: ImageEncoder | None, features: int, folder: Path
) -> Rows:
    scratch = folder / "rows.npy"
    if encoder is None:
        for path in request.images:
            if path.is_dir():
                raise InputError(
                    f"{path} is a folder, but the model was made from features: it takes .npy files"
                )
        return feature_rows(request.images, scratch, width=features)
    encoder = encoder.with_boxes(request.crop)
    listing = from_folders(None, request.images)
    cache = EmbeddingCache(request.cache or folder, encoder.cached_as, features)
    images, skipped = read_images(listing.items, encoder, request.device, cache)
    rows = collect([(item, cache, item.digest) for item in images], features, scratch)
    rows.skipped[:0] = [*listing.skipped, *skipped]
    return rows
