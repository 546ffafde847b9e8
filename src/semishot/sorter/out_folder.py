"""The files of OUT, and which of them `classify` may replace: its own, never a user's or links."""

from pathlib import Path
from typing import TYPE_CHECKING

from semishot.errors import InputError
from semishot.sorter.encoders.names import DESCRIPTION, GRAPH
from semishot.system.files import check_own, whole_folder

if TYPE_CHECKING:  # it imports scipy
    from semishot.estimator.fitted_model import FittedModel
    from semishot.sorter.encoders.image_encoder import ImageEncoder

SAVED_MODEL, CLASSIFIER = "model", "classifier.safetensors"
DATABASE = "labels.sqlite"
"""What the user has said."""
PREDICTIONS, SKIPPED = "predictions.csv", "skipped.csv"
REPORT, RESULT, AUDIT = "report.html", "result.json", "audit.csv"
EMBEDDINGS, PICTURES, SCRATCH = "embeddings", "pictures", ".features.npy"
OF_A_MODEL = (DESCRIPTION, GRAPH, CLASSIFIER)


def make_out(out: Path) -> None:
    """The folder --out, with those above it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"cannot make the folder --out {out} ({error.strerror})") from error


def check_out(out: Path) -> None:
    """Refuse an OUT where semishot's files would replace others, or be written through links."""
    check_saved_model(out / SAVED_MODEL)
    check_own(out / SCRATCH)
    if (out / PICTURES).is_symlink():
        raise InputError(f"{out / PICTURES} is a link, and would be written to: remove it")


def check_saved_model(folder: Path) -> None:
    """Refuse to replace anything but a saved model or an empty folder."""
    do = "move it away, or choose another --out"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder} is a link or not a folder, and would be replaced: {do}")
    files = [path for path in sorted(folder.glob("*")) if path.name != ".DS_Store"]  # of macOS
    for path in files:
        if path.name not in OF_A_MODEL or path.is_symlink() or not path.is_file():
            raise InputError(f"{path} is not part of a saved model, and would be deleted: {do}")
    if files and not (folder / CLASSIFIER).exists():
        raise InputError(f"{folder} has no {CLASSIFIER}, and would be replaced: {do}")


def write_saved_model(out: Path, encoder: "ImageEncoder | None", classifier: "FittedModel") -> None:
    """OUT/model, for `semishot predict` and `export`."""
    from semishot.estimator.fitted_model import write_model
    from semishot.sorter.encoders.image_encoder import save_encoder

    check_saved_model(out / SAVED_MODEL)
    with whole_folder(out / SAVED_MODEL) as folder:
        save_encoder(encoder, folder)
        write_model(folder / CLASSIFIER, classifier)


def read_saved_model(folder: Path) -> "tuple[FittedModel, ImageEncoder | None]":
    """Open the model that `semishot classify` left in OUT/model, given that folder or OUT."""
    from semishot.estimator.fitted_model import read_model
    from semishot.sorter.encoders.image_encoder import load_encoder

    if not (folder / CLASSIFIER).exists() and (folder / SAVED_MODEL / CLASSIFIER).exists():
        folder = folder / SAVED_MODEL
    encoder = load_encoder(folder)
    classifier = read_model(folder / CLASSIFIER)
    if encoder is not None and encoder.features != classifier.features:
        raise InputError(
            f"{folder} is damaged: its encoder gives {encoder.features:,} features, its classifier takes "
            f"{classifier.features:,}"
        )
    return classifier, encoder
