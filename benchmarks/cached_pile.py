"""A pile of made-up images whose features are cached already: nothing is encoded."""

import hashlib
import io
from pathlib import Path

import numpy as np
from PIL import Image

from semishot.sorter.embedding_cache import PIXELS, EmbeddingCache
from semishot.sorter.encoders.image_encoder import open_encoder

KINDS, LABELED = 12, 4
"""Kinds of images, of which the first are labeled; images of the others are strangers."""


def make_pile(root: Path, images: int, encoder: str, labels: int = 0) -> None:
    """PILE of random images of 8 x 8 pixels, LABELED with `labels` more of some kinds, and their CACHE."""
    rng = np.random.default_rng(0)
    opened = open_encoder(encoder)
    cache = EmbeddingCache(root / "cache", opened.identity, opened.features)
    centers = rng.standard_normal((KINDS, opened.features)).astype(np.float32)
    names = [root / "pile" / f"{number % KINDS}-{number}.png" for number in range(images)]
    names += [
        root / "labeled" / f"kind{kind}" / f"{kind}-{number}.png"
        for kind in range(LABELED)
        for number in range(labels)
    ]
    for path in names:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(file, "png")
        path.write_bytes(file.getvalue())
        noise = rng.standard_normal(opened.features).astype(np.float32)
        features = centers[int(path.name.split("-")[0])] + 0.9 * noise
        look = rng.integers(0, 256, PIXELS, np.uint8).tobytes()
        cache.add(hashlib.sha256(file.getvalue()).digest(), features, look)
    cache.flush()
