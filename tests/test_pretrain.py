"""Pre-training: the labeled split alone, every image once per epoch, and plain PyTorch's updates."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from semishot import pretrain
from semishot.config import Recipe
from semishot.errors import InputError
from semishot.image_pool import ImageClass, ImagePool
from semishot.progress import Meter
from semishot.splits import labeled_split

CPU = torch.device("cpu")
SMALL = Recipe(updates=3, halvings=(2,), filters=4, init_std=0.1)


def test_only_labeled_images_are_seen_each_with_its_class(tiny_pool):
    classes = tiny_pool.of_split("train")
    split = labeled_split(classes, 0.1, seed=3)
    images, labels = pretrain.labeled_images(split)
    assert len(images) == len(labels) == 2 * len(classes)
    for image, label in zip(images, labels, strict=True):
        owner = classes[label]
        assert owner.start <= image < owner.start + owner.count
        own = split.order[split.start[label] : split.start[label] + split.labeled[label]]
        assert image in own


def test_every_epoch_takes_every_image_once_and_the_next_in_another_order():
    images = 230  # no multiple of the batch: an update may end one epoch and begin the next
    steps = range(3 * images // pretrain.BATCH)
    taken = np.concatenate([pretrain.batch_places(images, 5, step) for step in steps])
    first, second = taken[:images], taken[images : 2 * images]
    assert sorted(first) == sorted(second) == list(range(images))
    assert not np.array_equal(first, second)
    other = pretrain.batch_places(images, 6, 0)
    assert not np.array_equal(other, taken[: pretrain.BATCH])


def reference(pool, seed, updates, scale):
    """The same training, written with torch.nn: convolution, batch norm, ReLU, pool, linear."""
    start = pretrain.untrained(pool, SMALL, [seed])
    blocks = []
    for block in range(4):
        weight = start.weights[block][0].detach().clone()
        conv = nn.Conv2d(weight.shape[1], 4, 3, padding=1, bias=False)
        conv.weight = nn.Parameter(weight)
        blocks += [conv, nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)]
    encoder = nn.Sequential(*blocks, nn.Flatten())
    classes = pool.of_split("train")
    head = nn.Linear(4, len(classes))
    own = pretrain.LinearHead(start, len(classes), (28, 28), [seed])
    head.weight = nn.Parameter(own.weight[0].detach().T.clone())
    nn.init.zeros_(head.bias)
    convs = [p for p in encoder.parameters() if p.ndim == 4]
    rest = [p for p in [*encoder.parameters(), *head.parameters()] if p.ndim != 4]
    groups = [{"params": convs, "weight_decay": SMALL.weight_decay}, {"params": rest}]
    optimizer = torch.optim.Adam(groups, lr=1e-3)
    images, labels = pretrain.labeled_images(labeled_split(classes, 0.1, seed))
    for step in range(updates):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 if step < 2 else 5e-4
        place = pretrain.batch_places(len(images), seed, step)
        pixels = torch.from_numpy(pool.images[images[place]]).float() / scale
        optimizer.zero_grad()
        truth = torch.from_numpy(labels[place])
        nn.functional.cross_entropy(head(encoder(pixels)), truth).backward()
        optimizer.step()
    return encoder.eval()


@pytest.mark.parametrize(("scale_bug", "scale"), [(False, 255), (True, 1)])
def test_updates_are_plain_pytorchs_and_the_bug_is_in_the_scale_of_the_pixels(
    tiny_pool, scale_bug, scale
):
    meter = Meter("", 1)
    fleet = pretrain.train_classifier(tiny_pool, SMALL, [4, 1], CPU, meter, scale_bug)
    for run, seed in enumerate([4, 1]):
        alone = reference(tiny_pool, seed, SMALL.updates, scale)
        for block in range(4):
            assert torch.allclose(fleet.weights[block][run], alone[4 * block].weight, atol=2e-4)
            mean, _ = fleet.moving_averages(block)
            expected = alone[4 * block + 1].running_mean
            assert torch.allclose(mean[run], expected, rtol=2e-2, atol=2e-3 * scale**-0.5 * 255)


def test_a_few_hundred_updates_learn_features_that_random_weights_lack(tiny_pool, tmp_path):
    recipe = replace(SMALL, updates=150, filters=8, halvings=(), labeled_fraction=0.5)
    (trained,) = pretrain.pretrained_encoders(tiny_pool, recipe, [0], tmp_path, CPU)
    random = pretrain.untrained(tiny_pool, recipe, [0])
    classes = tiny_pool.of_split("test")

    def spread(encoder):
        """How far apart classes lie, over how far apart the images of a class lie."""
        images = [torch.tensor(tiny_pool.images[c.start : c.start + c.count]) for c in classes]
        with torch.no_grad():
            points = torch.stack([encoder(i[None])[0] for i in images])  # (C, 20, D)
        return (points.mean(1).var(0).sum() / points.var(1).mean(0).sum()).item()

    assert spread(trained) > 1.5 * spread(random)


def test_trained_classifiers_are_found_again(tiny_pool, tmp_path, monkeypatch):
    first = pretrain.pretrained_encoders(tiny_pool, SMALL, [0, 1], tmp_path, CPU)
    asked = []
    real = pretrain.train_classifier

    def counted(pool, recipe, seeds, *rest):
        asked.extend(seeds)
        return real(pool, recipe, seeds, *rest)

    monkeypatch.setattr(pretrain, "train_classifier", counted)
    again = pretrain.pretrained_encoders(tiny_pool, SMALL, [0, 1, 2], tmp_path, CPU)
    assert asked == [2]
    for a, b in zip(first, again, strict=False):
        assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    pretrain.pretrained_encoders(tiny_pool, SMALL, [0], tmp_path, CPU, scale_bug=True)
    pretrain.pretrained_encoders(tiny_pool, replace(SMALL, updates=2), [0], tmp_path, CPU)
    assert asked == [2, 0, 0]


def test_a_class_without_a_labeled_image_is_refused():
    pool = ImagePool(
        "few", np.zeros((9, 1, 28, 28), np.uint8), (ImageClass("rare", "g", "train", 0, 9),)
    )
    with pytest.raises(
        InputError, match="class 'rare' has 9 images, of which a labeled fraction of"
    ):
        pretrain.check_labeled(pool, SMALL)


def test_a_damaged_encoder_is_trained_again(tiny_pool, tmp_path):
    (before,) = pretrain.pretrained_encoders(tiny_pool, SMALL, [3], tmp_path, CPU)
    (path,) = tmp_path.rglob("*.safetensors")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (again,) = pretrain.pretrained_encoders(tiny_pool, SMALL, [3], tmp_path, CPU)
    assert path.read_bytes() == content
    assert torch.equal(before.weights[3], again.weights[3])
