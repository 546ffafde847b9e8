"""The page in which a person labels a pile: durable answers, judgements, the server, the page."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from semishot.sorter.encoders.names import View
from semishot.system.devices import Device
from semishot.system.files import real_path


@dataclass(frozen=True)
class LabelRequest:
    """Label a pile of images in the browser: click a few, and semishot sorts the rest."""

    pile: Path
    """The folder of the pile, which may have subfolders."""
    labeled: Path | None = None
    """A folder with one folder of images per class: labels to begin with."""
    out: Path | None = None
    """The folder for answers, features, exports and sorted files; by default PILE-labels, beside PILE."""
    encoder: str | None = None
    """photos (the default), photos-lite0 (about twice as fast), omniglot for small line drawings,
    onnx:FILE, dinov2-small, clip-b32, siglip-base or hf:OWNER/NAME (downloaded once), or a folder
    written by `semishot train`."""
    view: View | None = None
    """What the encoder sees of a photograph: the whole frame, squeezed into a square, the middle, or both
    (the default), which takes twice the time."""
    crop: Path | None = None
    """Boxes of animals, a .json in MegaDetector's format. The encoder sees the square around the surest box
    of each image, or the frame if there is none."""
    names: str | None = None
    """Names of classes, separated by commas, to begin before the first label; with an encoder that was
    trained with texts, clip-b32 or siglip-base."""
    burst: Annotated[float, Meta(ge=0)] | None = None
    """Photographs of a folder taken within so many seconds of each other, by EXIF, are answered as one."""
    cache: Path | None = None
    """Keep features here, for other runs too; by default in OUT/embeddings."""
    port: int = 0
    """The port of the page; 0 is a free one."""
    host: str = "127.0.0.1"
    """The address to listen on. Any other than this machine's own lets others reach the page, if they
    have the token."""
    no_browser: bool = False
    """Print the address instead of opening it."""
    device: Device = "auto"

    @property
    def folder(self) -> Path:
        """OUT, as given or by default."""
        if self.out is not None:
            return self.out
        pile = real_path(self.pile)
        return pile.with_name(f"{pile.name}-labels")
