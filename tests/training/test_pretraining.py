"""Pre-training: the labeled split alone, plain PyTorch's updates, and a killed one ends the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from semishot.data.pool import ImageClass, ImagePool
from semishot.data.splits import labeled_split
from semishot.errors import InputError
from semishot.network.encoder import ConvEncoder
from semishot.training import classification
from semishot.training.classification import ClassificationRequest
from semishot.training.config import Recipe
from semishot.training.fleet_log import Row

CPU = torch.device("cpu")
SMALL = Recipe(updates=3, halvings=(2,), filters=4, init_std=0.1)


def encoders(
    pool: ImagePool, recipe: Recipe, seeds: list[int], runs: Path, scale_bug: bool = False
) -> list[ConvEncoder]:
    request = ClassificationRequest(pool, recipe, CPU, scale_bug)
    files = classification.pretrained(request, seeds, runs)
    return [classification.load_encoder(request, files[seed]) for seed in seeds]


def test_only_labeled_images_are_seen_each_with_its_class(tiny_pool):
    classes = tiny_pool.of_split("train")
    split = labeled_split(classes, 0.1, seed=3)
    images, labels = classification.labeled_images(split)
    assert len(images) == len(labels) == 2 * len(classes)
    for image, label in zip(images, labels, strict=True):
        owner = classes[label]
        assert owner.start <= image < owner.start + owner.count
        own = split.order[split.start[label] : split.start[label] + split.labeled[label]]
        assert image in own


def reference(pool, seed, updates, scale):
    """The same training, written with torch.nn: convolution, batch norm, ReLU, pool, linear."""
    start = classification.untrained(pool, SMALL, [seed])
    blocks = []
    for block in range(4):
        weight = start.weights[block][0].detach().clone()
        conv = nn.Conv2d(weight.shape[1], 4, 3, padding=1, bias=False)
        conv.weight = nn.Parameter(weight)
        blocks += [conv, nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)]
    encoder = nn.Sequential(*blocks, nn.Flatten())
    classes = pool.of_split("train")
    head = nn.Linear(4, len(classes))
    own = classification.LinearClassifier(start, (4, len(classes)), [seed], 1)
    head.weight = nn.Parameter(own.weight[0].detach().T.clone())
    nn.init.zeros_(head.bias)
    convs = [p for p in encoder.parameters() if p.ndim == 4]
    rest = [p for p in [*encoder.parameters(), *head.parameters()] if p.ndim != 4]
    groups = [{"params": convs, "weight_decay": SMALL.weight_decay}, {"params": rest}]
    optimizer = torch.optim.Adam(groups, lr=1e-3)
    images, labels = classification.labeled_images(labeled_split(classes, 0.1, seed))
    for step in range(updates):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 if step < 2 else 5e-4
        place = classification.batch_indices(len(images), seed, step, classification.BATCH)
        pixels = torch.from_numpy(pool.images[images[place]]).float() / scale
        optimizer.zero_grad()
        truth = torch.from_numpy(labels[place])
        nn.functional.cross_entropy(head(encoder(pixels)), truth).backward()
        optimizer.step()
    return encoder.eval()


@pytest.mark.parametrize(("scale_bug", "scale"), [(False, 255), (True, 1)])
def test_updates_are_plain_pytorchs_and_the_bug_is_in_the_scale_of_the_pixels(
    tiny_pool, tmp_path, scale_bug, scale
):
    files = {seed: tmp_path / f"{seed}.safetensors" for seed in (4, 1)}
    request = ClassificationRequest(tiny_pool, SMALL, CPU, scale_bug)
    row = Row("both", SMALL.updates, 1)
    assert len(list(classification.train_together(request, files, row, None))) > 0
    for seed, file in files.items():
        trained = classification.load_encoder(request, file)
        alone = reference(tiny_pool, seed, SMALL.updates, scale)
        for block in range(4):
            assert torch.allclose(trained.weights[block][0], alone[4 * block].weight, atol=2e-4)
            mean, _ = trained.moving_averages(block)
            expected = alone[4 * block + 1].running_mean
            assert torch.allclose(mean[0], expected, rtol=2e-2, atol=2e-3 * scale**-0.5 * 255)


def test_trained_classifiers_are_found_again_by_all_that_made_them(tiny_pool, tmp_path):
    def files(*settings) -> dict[Path, int]:
        encoders(tiny_pool, *settings)
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}

    first = files(SMALL, [0, 1], tmp_path)
    again = files(SMALL, [0, 1, 2], tmp_path)
    assert first.items() < again.items()
    with_bug = files(SMALL, [0], tmp_path, True)
    shorter = files(replace(SMALL, updates=2), [0], tmp_path)
    assert again.items() < with_bug.items() < shorter.items()
    assert len(shorter) == 5


def test_a_class_without_a_labeled_image_is_refused():
    pool = ImagePool(
        "few", np.zeros((9, 1, 28, 28), np.uint8), (ImageClass("rare", "g", "train", 0, 9),)
    )
    with pytest.raises(
        InputError, match="class 'rare' has 9 images, of which a labeled fraction of"
    ):
        classification.check_labeled(pool, SMALL)
