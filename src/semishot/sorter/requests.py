"""The settings of `classify` and `predict`.

Each field is a flag of the command; the text below it is its help. Nothing here imports torch.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from semishot.sorter.encoders.names import OnnxOptions, View
from semishot.sorter.out_folder import DATABASE
from semishot.system.devices import Device

How = Literal["move", "copy", "link"]


@dataclass(frozen=True)
class ClassifyRequest:
    """Sort a pile of images by a few labeled ones."""

    out: Path
    """The folder for predictions.csv, report.html, skipped.csv, result.json and the model."""
    labeled: Path | None = None
    """A folder with one folder of images per class, and one named `stranger` for images of none; or a .csv
    of path,label, where an empty label means unlabeled; or OUT/predictions.csv; or OUT/labels.sqlite, the
    answers of `semishot label`; or .npy features. With --names it may be left out."""
    unlabeled: Path | None = None
    """The folder of the pile, which may have subfolders; or .npy features."""
    labels: Path | None = None
    """The labels of .npy features: a .csv with the column label, or .npy; empty or -1 means unlabeled."""
    encoder: str | None = None
    """photos (the default), photos-lite0 (about twice as fast), omniglot for small line drawings,
    onnx:FILE, dinov2-small, clip-b32, siglip-base or hf:OWNER/NAME (downloaded once), or a folder
    written by `semishot train` (FOLDER#2 is its third run)."""
    view: View | None = None
    """What the encoder sees of a photograph: the whole frame, squeezed into a square, the middle, or both
    (the default), which takes twice the time."""
    crop: Path | None = None
    """Boxes of animals, a .json in MegaDetector's format. The encoder sees the square around the surest box
    of each image, or the frame if there is none."""
    onnx: OnnxOptions = field(default_factory=OnnxOptions)
    names: str | None = None
    """Names of classes, separated by commas, to begin before the first label; with an encoder that was
    trained with texts, clip-b32 or siglip-base."""
    reject: float | Literal["auto"] = "auto"
    """auto: an image is a stranger if that is more probable than any class. Or the share of images of your
    classes that may be lost among the strangers, such as 0.05."""
    apply: How | None = None
    """Sort the files too, into OUT/sorted/CLASS; `semishot undo OUT` undoes it."""
    cache: Path | None = None
    """Keep features here, for other runs too; by default in OUT/embeddings."""
    device: Device = "auto"

    @property
    def with_features(self) -> bool:
        """Whether features are given instead of images."""
        return self.given.suffix.lower() == ".npy"

    @property
    def given(self) -> Path:
        """Where labels are: with names alone, the answers in OUT, if there are any."""
        return self.labeled if self.labeled is not None else self.out / DATABASE


@dataclass(frozen=True)
class PredictRequest:
    """Predict the classes of new images by a saved model."""

    model: Path
    """OUT/model, or OUT."""
    images: tuple[Path, ...]
    """Image files, or folders of them; or .npy features, as the model was given."""
    crop: Path | None = None
    """Boxes of animals, a .json in MegaDetector's format. The encoder sees the square around the surest box
    of each image, or the frame if there is none."""
    cache: Path | None = None
    """Keep features here, and use those already there."""
    device: Device = "auto"
