"""tieredImageNet from every form in which people hold it, and parts of it."""

import pickle
import re
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from semishot import datasets
from semishot.commands.main import main
from semishot.data.pool import SPLITS
from semishot.datasets import tiered_imagenet
from semishot.datasets.tiered_imagenet import TABLE4, class_list, describe, prepare
from support.ilsvrc import write_class_tars, write_tar, write_tree
from support.images import encoded
from support.preparing import prepare_refusal

CLASSES = """train c01 n01 n02
train c02 n03
val c03 n04
test c04 n05 n06
"""
GROUP = {"n01": "c01", "n02": "c01", "n03": "c02", "n04": "c03", "n05": "c04", "n06": "c04"}
LABELS = {"train": ["n03", "n01", "n02"], "val": ["n04"], "test": ["n06", "n05"]}
"""In the pickles' own order."""
IMAGES = {"n01": 4, "n02": 2, "n03": 3, "n04": 5, "n05": 1, "n06": 2}
NUMBERS = [7, 26, 100, 1000, 20001]


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Six classes."""
    listed = tmp_path / "classes.txt"
    listed.write_text(CLASSES)
    monkeypatch.setattr(tiered_imagenet, "CLASSES", listed)
    table = {"train": (3, 9), "val": (1, 5), "test": (2, 3)}
    monkeypatch.setattr(tiered_imagenet, "TABLE4", table)
    return tmp_path / "source"


def photograph(name: str, place: int) -> Image.Image:
    """84x84, so that every form holds the same pixels; red, green and blue differ."""
    noise = np.random.default_rng([int(name[1:]), place]).integers(0, 80, (84, 84, 3), np.uint8)
    return Image.fromarray(noise + np.array([0, 60, 160], np.uint8))


FILES = {
    name: {
        f"{name}_{NUMBERS[place]}.JPEG": encoded(photograph(name, place)) for place in range(count)
    }
    for name, count in IMAGES.items()
}
"""ILSVRC-12 has a PNG called JPEG, too."""
make_tree = partial(write_tree, FILES)


def order_of(split: str) -> list[tuple[str, int]]:
    """The images of a published file, (class, place), classes mixed."""
    every = [(name, place) for name in LABELS[split] for place in range(IMAGES[name])]
    return sorted(every, key=lambda pair: (pair[1], pair[0]))


def write_labels(source: Path, split: str, protocol: int = 2, **changes: object) -> None:
    names = LABELS[split]
    held = {
        "label_specific": np.array([names.index(name) for name, _ in order_of(split)], np.int32),
        "label_general": np.zeros(len(order_of(split)), np.int32),  # wrong, as the published ones
        "label_specific_str": [f"class {name}" for name in names],
        "label_general_str": ["everything"],
        **changes,
    }
    source.mkdir(exist_ok=True)
    (source / f"{split}_labels.pkl").write_bytes(pickle.dumps(held, protocol))


def write_names(source: Path) -> None:
    """As published: all of ILSVRC-12, in which a name may stand for two classes."""
    wnids = ["n90", *IMAGES, "n91"]
    names = ["class n01", *(f"class {name}" for name in IMAGES), "of no interest"]
    (source / "synsets.txt").write_text("".join(f"{wnid}\n" for wnid in wnids))
    (source / "class_names.txt").write_text("".join(f"{name}\n" for name in names))


def make_pickles(source: Path, protocol: int) -> None:
    for split in SPLITS:
        write_labels(source, split, protocol)
        held = [
            np.frombuffer(encoded(photograph(*image)), np.uint8)[:, None].copy()
            for image in order_of(split)
        ]
        (source / f"{split}_images_png.pkl").write_bytes(pickle.dumps(held, protocol))
    write_names(source)


ILSVRC, PUBLISHED = "the ILSVRC-12 training images", "the authors' published files"
FORMS = {
    "tree": (make_tree, ILSVRC),
    "class tars": (partial(write_class_tars, FILES), ILSVRC),
    "tar of tars": (partial(write_tar, FILES), ILSVRC),
    "pickles 4": (partial(make_pickles, protocol=4), PUBLISHED),
    "pickles 5": (partial(make_pickles, protocol=5), PUBLISHED),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_pool(small, tmp_path, form):
    make, named = FORMS[form]
    make(small)
    before = sorted(small.rglob("*"))
    pool = prepare(tmp_path / "pool", small)
    rows = [(c.name, c.group, c.split, c.count) for c in pool.classes]
    splits = {name: split for split, names in LABELS.items() for name in names}
    assert rows == [(name, GROUP[name], splits[name], IMAGES[name]) for name in sorted(IMAGES)]
    for held in pool.classes:
        for place in range(held.count):
            expected = np.asarray(photograph(held.name, place)).transpose(2, 0, 1)
            np.testing.assert_array_equal(pool.images[held.start + place], expected)
    assert describe(pool) == [
        f"6 classes in 4 categories, from {named}",
        "train: 3 of 3 classes, 9 images, as many as in Table 4",
        "val: 1 of 1 classes, 5 images, as many as in Table 4",
        "test: 2 of 2 classes, 3 images, as many as in Table 4",
        "complete",
    ]
    assert sorted(small.rglob("*")) == before, "nothing is extracted"
    left = sorted(p.name for p in tmp_path.iterdir())
    assert left == ["classes.txt", "pool", "source"]


def test_the_list_is_that_of_the_paper():
    known = class_list()
    assert len({c.name for c in known}) == len(known) == 608
    assert len({c.group for c in known}) == 34
    assert Counter(c.split for c in known) == {s: classes for s, (classes, _) in TABLE4.items()}
    assert sum(images for _, images in TABLE4.values()) == 779_165
    categories = {split: {c.group for c in known if c.split == split} for split in SPLITS}
    assert [len(categories[split]) for split in SPLITS] == [20, 6, 8]
    assert not categories["train"] & (categories["val"] | categories["test"])
    assert not categories["val"] & categories["test"]
    sizes = Counter(c.group for c in known).values()
    assert (min(sizes), max(sizes)) == (10, 30)
    assert not {c.name for c in known} & {c.group for c in known}
    assert known == sorted(known, key=lambda c: (SPLITS.index(c.split), c.group, c.name))


# A part of it


def test_missing_classes_are_refused_unless_they_are_meant_to_be(small, tmp_path):
    make_tree(small)
    for path in (small / "train/n02").iterdir():
        path.unlink()  # a class without images is no class
    (small / "train/n05").rename(small / "train/n55")
    line = r"lacks 2 of tieredImageNet's 6 classes, first n02 of train; add them, or pass --partial"
    fails(small, line)
    pool = prepare(tmp_path / "pool", small, partial=True)
    assert [c.name for c in pool.classes] == ["n01", "n03", "n04", "n06"]
    assert describe(pool) == [
        f"4 classes in 4 categories, from {ILSVRC}",
        "train: 2 of 3 classes, 7 images, 2 fewer than in Table 4",
        "val: 1 of 1 classes, 5 images, as many as in Table 4",
        "test: 1 of 2 classes, 2 images, 1 fewer than in Table 4",
        "partial: 2 classes are missing; no published number refers to it",
    ]


def test_table_3_is_not_run_on_a_part_of_its_classes_unasked(small, tmp_path, capsys):
    make_tree(small)
    (small / "train/n05").rename(small / "train/n55")
    datasets.prepare("tiered-imagenet", small, tmp_path / "root", partial=True)
    with pytest.raises(SystemExit):
        main(["reproduce", "table3", "--data-root", str(tmp_path / "root"), "--device", "cpu"])
    assert (
        "tiered-imagenet has 5 classes here and lacks others, so its numbers would not be the paper's: "
        "prepare the rest, or pass --partial"
    ) in capsys.readouterr().err


# What is refused


def fails(source: Path, message: str) -> None:
    assert re.search(message, prepare_refusal(prepare, source, source.parent))


def test_a_damaged_image_is_named(small):
    small.mkdir()
    fails(small, "no files of tieredImageNet in .*source: it needs an ILSVRC-12 training tree")
    make_tree(small)
    (small / "train/n03/n03_26.JPEG").write_bytes(b"<html>")
    fails(small, r"source/train/n03/n03_26.JPEG is not a readable image")


def test_images_without_labels_and_labels_without_images(small):
    make_pickles(small, 4)
    (small / "val_images_png.pkl").unlink()
    fails(small, "no val_images_png.pkl in .*source; put it there")
    (small / "val_images_png.pkl").write_bytes(pickle.dumps([np.zeros(9, np.uint8)]))
    fails(small, r"source/val_labels.pkl has 5 labels for 0 images")


def test_names_that_are_no_class_of_the_split(small):
    make_pickles(small, 4)
    (small / "synsets.txt").unlink()
    message = (
        r"train_labels.pkl: 'class n03' is not a train class .*put class_names.txt and synsets.t"
    )
    fails(small, message)
    write_names(small)
    write_labels(small, "test", label_specific_str=["class n05", "n05"])
    fails(small, "test_labels.pkl: 'n05' is not a test class of tieredImageNet, or is there twice")
    (small / "synsets.txt").write_text("n01\n")
    fails(small, r"class_names.txt has 8 lines and synsets.txt 1; get them again")


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"labels": 1}, "val_labels.pkl holds labels, not label_specific and label_specific_str"),
        ([1], "holds list, not label_specific and"),
        (
            {"label_specific": [0, 0, 1], "label_specific_str": ["n04"]},
            "not a list of numbers below 1",
        ),
        ({"label_specific": [0], "label_specific_str": 4}, "cannot read .*val_labels.pkl"),
    ],
)
def test_odd_labels(small, held, message):
    make_pickles(small, 4)
    (small / "val_labels.pkl").write_bytes(pickle.dumps(held))
    fails(small, message)
