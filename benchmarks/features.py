"""Features to classify: Omniglot by the shipped encoder, miniImageNet by EfficientNet-Lite0.

    python benchmarks/features.py FOLDER [--data-root ROOT]

writes FOLDER/DATASET-SPLIT.npy, (classes, images, dimensions) in float32. The photographs need the
extra `photos`, whose network was trained on all of ImageNet, miniImageNet's classes among them.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from semishot import datasets
from semishot.data.pool import ImageClass, ImagePool, Split
from semishot.data.splits import all_labeled
from semishot.sorter.encoders.image_encoder import ImageEncoder, open_encoder
from semishot.system.files import write_whole_with
from semishot.training.evaluation import embed_classes, find_model
from semishot.training.fleets import load_model

Features = NDArray[np.float32]
WANTED: dict[str, tuple[Split, ...]] = {
    "omniglot": ("val", "test"),
    "mini-imagenet": ("train", "test"),
}
TRAINING_CLASSES, TRAINING_IMAGES = 24, 300
"""Of the 64 x 600 photographs: enough to choose defaults."""
BATCH = 32


def omniglot(pool: ImagePool, split: Split) -> Features:
    """(C, 20, 64) by `pretrained:omniglot`, which has seen neither of these splits in training."""
    _, model = load_model(find_model("pretrained:omniglot"), torch.device("cpu"))
    classes = pool.of_split(split)
    rows = embed_classes(model, pool, all_labeled(classes))[0]
    return rows.reshape(len(classes), -1, rows.shape[-1]).numpy()


def photographs(pool: ImagePool, split: Split) -> Features:
    """(C, I, 1280) by the encoder `photos`, as `semishot classify` sees them."""
    encoder = open_encoder("photos-lite0")
    classes: Sequence[ImageClass] = pool.of_split(split)
    if split == "train":
        classes = [replace(c, count=TRAINING_IMAGES) for c in classes[:TRAINING_CLASSES]]
    return np.stack([encoded(encoder, pool.images[c.start : c.start + c.count]) for c in classes])


@torch.inference_mode()
def encoded(encoder: ImageEncoder, images: NDArray[np.uint8]) -> Features:
    """(I, 3, H, W) -> (I, D)."""
    rows = []
    for first in range(0, len(images), BATCH):
        batch = images[first : first + BATCH].transpose(0, 2, 3, 1)
        pixels = np.stack([encoder.prepare(Image.fromarray(image)) for image in batch])
        rows.append(encoder.module(torch.from_numpy(pixels)).numpy())
    return np.concatenate(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data-root", type=Path)
    given = parser.parse_args()
    for dataset, splits in WANTED.items():
        for split in splits:
            path = given.folder / f"{dataset}-{split}.npy"
            if path.exists():
                continue
            pool = datasets.load(dataset, given.data_root)
            found = (omniglot if dataset == "omniglot" else photographs)(pool, split)
            write_whole_with(path, lambda file, found=found: np.save(file, found))
            print(path, found.shape)


if __name__ == "__main__":
    main()
