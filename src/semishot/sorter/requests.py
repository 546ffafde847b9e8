"""The settings of `classify` and `predict`.

Each field is a flag of the command; the text below it is its help. Nothing here imports torch.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from semishot.sorter.journal import How
from semishot.system.flags import Address, Device


@dataclass(frozen=True)
class ClassifyRequest:
    """Sort a pile of images by a few labeled ones."""

    labeled: Path
    """A folder with one folder of images per class, and one named `stranger` for images of none; or a .csv
    of path,label, where an empty label means unlabeled; or OUT/predictions.csv; or .npy features."""
    out: Path
    """The folder for predictions.csv, report.html, skipped.csv, result.json and the model."""
    unlabeled: Path | None = None
    """The folder of the pile, which may have subfolders; or .npy features."""
    labels: Path | None = None
    """The labels of .npy features: a .csv with the column label, or .npy; empty or -1 means unlabeled."""
    encoder: str | None = None
    """photos (the default), omniglot for small line drawings, timm:NAME, or a folder left by
    `semishot train` (FOLDER#2 is its third run)."""
    reject: float = 0.05
    """The share of true members that may be taken for strangers."""
    apply: How | None = None
    """Sort the files too, into OUT/sorted/CLASS; `semishot undo OUT` undoes it."""
    cache: Path | None = None
    """Keep features here, for other runs too; by default in OUT/embeddings."""
    device: Device = "auto"
    engine: Literal["local", "ray"] | None = None
    """local embeds on every GPU of this machine, or on its cores, a process each; ray on the
    machines of a Ray cluster."""
    address: Address = None

    @property
    def with_features(self) -> bool:
        """Whether features are given instead of images."""
        return self.labeled.suffix.lower() == ".npy"


@dataclass(frozen=True)
class PredictRequest:
    """Predict the classes of new images by a saved model."""

    model: Path
    """OUT/model, or OUT."""
    images: tuple[Path, ...]
    """Image files, or folders of them; or .npy features, as the model was given."""
    cache: Path | None = None
    """Keep features here, and use those already there."""
    device: Device = "auto"
