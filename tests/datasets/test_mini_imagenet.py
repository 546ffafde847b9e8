"""miniImageNet from every form in which people hold it, on small generated trees."""

import pickle
import re
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from semishot.data import image_sources
from semishot.data.decoding import decode
from semishot.data.pool import SPLITS
from semishot.datasets import mini_imagenet
from semishot.datasets.mini_imagenet import describe, prepare
from semishot.errors import InputError
from support.ilsvrc import write_class_tars, write_tar, write_tree
from support.images import encoded, noise
from support.preparing import prepare_refusal

CLASSES = {"train": 3, "val": 1, "test": 2}
IMAGES = 4
LABELS = {  # not in the order of their names
    "train": ["n00000003", "n00000001", "n00000002"],
    "val": ["n00000009"],
    "test": ["n00000005", "n00000004"],
}
NUMBERS = [1, 2, 4, 6]
ILSVRC_NUMBERS = [3, 6, 26, 27, 100, 1000, 20001]
"""By name 100, 1000, 20001, 26, 27, 3, 6. Natural order: files 1, 2, 4 and 6 are these four:"""
CHOSEN = [3, 6, 27, 1000]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(mini_imagenet, "CLASSES", CLASSES)
    monkeypatch.setattr(mini_imagenet, "IMAGES", IMAGES)


def jpeg(label: str, number: int) -> bytes:
    small = Image.fromarray(noise([int(label[1:]), number], 7, 9, 3))
    return encoded(small.resize((96, 90)), "JPEG")


def write_csvs(source: Path) -> None:
    source.mkdir(exist_ok=True)
    for split, labels in LABELS.items():
        rows = [f"{label}{number:08}.jpg,{label}\n" for label in labels for number in NUMBERS]
        (source / f"{split}.csv").write_text("filename,label\n" + "".join(rows))


def photographs(splits=SPLITS) -> dict[str, bytes]:
    """The csv's file names, whose images are those of `CHOSEN`, so that every form is one pool."""
    return {
        f"{label}{number:08}.jpg": jpeg(label, chosen)
        for split in splits
        for label in LABELS[split]
        for number, chosen in zip(NUMBERS, CHOSEN, strict=True)
    }


def make_folder(source: Path, splits=SPLITS) -> None:
    write_csvs(source)
    (source / "images").mkdir()
    for name, data in photographs(splits).items():
        (source / "images" / name).write_bytes(data)
    (source / "images" / "notes.txt").write_text("not an image")


def write_zip(path: Path, members: dict[str, bytes], compression=zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as opened:
        for name, data in members.items():
            opened.writestr(name, data)


def make_zips(source: Path) -> None:
    write_csvs(source)
    named = [(f"images/{name}", data) for name, data in photographs().items()]
    write_zip(source / "a.zip", dict(named[:10]))
    write_zip(source / "b.zip", {**dict(named[10:]), "x.txt": b""}, zipfile.ZIP_DEFLATED)


def ilsvrc() -> dict[str, dict[str, bytes]]:
    return {
        label: {f"{label}_{number}.JPEG": jpeg(label, number) for number in ILSVRC_NUMBERS}
        for labels in LABELS.values()
        for label in labels
    }


def make_tree(source: Path, below: str = "train") -> None:
    write_csvs(source)
    write_tree(ilsvrc(), source, below)


def make_tar(source: Path) -> None:
    write_csvs(source)
    write_tar(ilsvrc(), source)


def make_class_tars(source: Path) -> None:
    write_csvs(source)
    write_class_tars(ilsvrc(), source)


def cache(split: str) -> dict[str, object]:
    """Pixels as the builder decodes them, so that the pool is the same; classes interleaved."""
    labels = LABELS[split]
    decoded = [decode(jpeg(label, n), "", 84) for n in CHOSEN for label in labels]
    rows = {
        label: list(range(i, IMAGES * len(labels), len(labels))) for i, label in enumerate(labels)
    }
    return {"image_data": np.stack(decoded).transpose(0, 2, 3, 1).copy(), "class_dict": rows}


def write_cache(source: Path, split: str, held: object, protocol: int = 2) -> Path:
    source.mkdir(exist_ok=True)
    path = source / f"mini-imagenet-cache-{split}.pkl"
    path.write_bytes(pickle.dumps(held, protocol))
    return path


def make_caches(source: Path, protocol: int) -> None:
    for split in SPLITS:
        write_cache(source, split, cache(split), protocol)


FORMS = {
    "folder": make_folder,
    "zips": make_zips,
    "tree": make_tree,
    "tree in images": partial(make_tree, below="images"),
    "tar of tars": make_tar,
    "class tars": make_class_tars,
    "pickles 2": partial(make_caches, protocol=2),
    "pickles 5": partial(make_caches, protocol=5),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_pool(tmp_path, form):
    source = tmp_path / "a {source}"
    FORMS[form](source)
    before = sorted(source.rglob("*"))
    pool = prepare(tmp_path / "pool", source)
    place = 0
    for split in SPLITS:
        for label in sorted(LABELS[split]):
            held = pool.classes[place // IMAGES]
            assert (held.name, held.group, held.split) == (label, label, split)
            assert (held.start, held.count) == (place, IMAGES)
            for number in CHOSEN:
                expected = decode(jpeg(label, number), "", 84)
                np.testing.assert_array_equal(pool.images[place], expected)
                place += 1
    assert pool.images.shape == (place, 3, 84, 84)
    assert pool.about["images"] == place
    assert pool.about["variant"] == "miniImageNet, Ravi split, complete"
    assert describe(pool)[:2] == ["6 classes of 4 photographs", pool.about["variant"]]
    assert sorted(source.rglob("*")) == before, "nothing is extracted"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a {source}", "pool"]


def test_splits_that_are_absent_are_skipped_only_when_asked(tmp_path):
    make_folder(tmp_path, ("train", "test"))
    absent = r"the images of val.csv are absent from .*, or pass --splits train,test$"
    with pytest.raises(InputError, match=absent):
        prepare(tmp_path / "pool", tmp_path)
    pool = prepare(tmp_path / "pool", tmp_path, ("test", "train"))
    assert [c.split for c in pool.classes] == ["train"] * 3 + ["test"] * 2
    assert pool.about["variant"] == "miniImageNet, Ravi split, without val"


@pytest.mark.parametrize("form", ["zips", "pickles 2"])
def test_swapped_lists_exchange_validation_and_test_classes(tmp_path, form):
    """As the first version of the authors' code read them; every image stays with its class."""
    FORMS[form](tmp_path / "source")
    usual = prepare(tmp_path / "usual", tmp_path / "source")
    swapped = prepare(tmp_path / "swapped", tmp_path / "source", lists="swapped")
    for split, of in {"train": "train", "val": "test", "test": "val"}.items():
        theirs, ours = swapped.of_split(split), usual.of_split(of)
        assert [c.name for c in theirs] == [c.name for c in ours]
        for one, other in zip(theirs, ours, strict=True):
            np.testing.assert_array_equal(
                swapped.images[one.start : one.start + one.count],
                usual.images[other.start : other.start + other.count],
            )
    assert swapped.about["preparation"] == "swapped"
    assert "preparation" not in usual.about
    assert describe(swapped)[1].endswith("complete, validation and test classes exchanged")
    with pytest.raises(InputError, match="all three lists; drop --splits"):
        prepare(tmp_path / "part", tmp_path / "source", ("train", "val"), lists="swapped")


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def fails(source: Path, message: str) -> None:
    assert re.search(message, prepare_refusal(prepare, source, source.parent))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:500])


DAMAGE = {
    "no csv": (
        "folder",
        lambda s: (s / "train.csv").unlink(),
        "no train.csv in .* --splits val,test",
    ),
    "columns": (
        "folder",
        lambda s: replace_in(s / "train.csv", "filename,label", "filename,class"),
        "train.csv has the columns filename,class, not filename,label; get the csv of https://",
    ),
    "classes": (
        "folder",
        lambda s: replace_in(s / "train.csv", ",n00000003", ",n00000002"),
        "has 2 classes, not the 3 of the Ravi split",
    ),
    "twice": (
        "folder",
        lambda s: replace_in(s / "train.csv", "n0000000300000006", "n0000000300000004"),
        "class n00000003 has 3 different images in 4 entries",
    ),
    "label": (
        "folder",
        lambda s: replace_in(s / "train.csv", "06.jpg,n00000003", "06.jpg,"),
        "line 5: no filename or no label",
    ),
    "both": (
        "folder",
        lambda s: replace_in(s / "train.csv", ",n00000003", ",n00000009"),
        "n00000009 is in both train and val",
    ),
    "absent": (
        "folder",
        lambda s: (s / "images/n0000000500000002.jpg").unlink(),
        "1 of 8 images of test.csv are absent from .*, such as n0000000500000002.jpg",
    ),
    "image": (
        "folder",
        lambda s: (s / "images/n0000000500000002.jpg").write_bytes(b"<html>"),
        "source/images/n0000000500000002.jpg ",
    ),
    "zip": ("zips", lambda s: cut(s / "b.zip"), r"cannot read .*b.zip \(File is not a zip file\)"),
    "rank": (
        "tree",
        lambda s: [(s / f"train/n00000004/n00000004_{n}.JPEG").unlink() for n in (26, 27)],
        "n0000000400000006.jpg is file 6 of class n00000004, but .* has 5; get the complete",
    ),
    "no pickle": (
        "pickles 2",
        lambda s: (s / "mini-imagenet-cache-val.pkl").unlink(),
        "no mini-imagenet-cache-val.pkl in .* --splits train,test",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named(tmp_path, damage):
    form, alter, message = DAMAGE[damage]
    FORMS[form](tmp_path / "source")
    alter(tmp_path / "source")
    fails(tmp_path / "source", message)


def test_damaged_tar(tmp_path):
    source = tmp_path / "source"
    make_tar(source)
    tar = source / image_sources.ILSVRC_TAR
    tar.write_bytes(tar.read_bytes().replace(b"n00000003_6.JPEG", b"n00000003_X.JPEG"))
    fails(
        source,
        "cannot read .*ILSVRC2012_img_train.tar .*it is damaged at byte .*; get the file again",
    )


def with_changed(**changes: object) -> dict[str, object]:
    return {**cache("train"), **changes}


PIXELS = np.zeros((12, 84, 84, 3), np.uint8)
PICKLE_DAMAGE = {
    "keys": ({"data": 1, "labels": 2}, "holds data, labels, not image_data and class_dict"),
    "dtype": (
        with_changed(image_data=PIXELS.astype(np.float32)),
        "image_data is float32 .* not uint8",
    ),
    "short": (with_changed(image_data=PIXELS[:11]), "class_dict names an image beyond the 11"),
    "classes": (with_changed(class_dict={"a": [0, 1, 2, 3]}), "has 1 classes, not the 3"),
}


@pytest.mark.parametrize("damage", PICKLE_DAMAGE)
def test_odd_pickle(tmp_path, damage):
    source = tmp_path / "source"
    make_caches(source, 2)
    held, message = PICKLE_DAMAGE[damage]
    write_cache(source, "train", held)
    fails(source, message)
