"""A researcher's own tree: its layout is found, its splits are whole, and each oddity has a line."""

import random
from pathlib import Path

import numpy as np
import pytest

from semishot import datasets
from semishot.data.framing import Whole
from semishot.data.pool import open_pool, save_pool
from semishot.data.pool_builder import PlannedClass
from semishot.datasets import folder
from semishot.errors import InputError
from support.images import encoded, noise

SPLITS = ("train", "val", "test")


def write(source: Path, files: dict[str, bytes]) -> Path:
    """In any order but the sorted one."""
    for path in random.Random(3).sample(sorted(files), len(files)):
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes(files[path])
    return source


def named(source: Path, *paths: str) -> Path:
    """Files that only their names matter of."""
    return write(source, dict.fromkeys(paths, b"x"))


def planned(source: Path) -> list[PlannedClass]:
    tree = folder.read_tree(source)
    return folder.plan(tree, folder.find_layout(tree, source), source)


def small_tree() -> dict[str, np.ndarray]:
    paths = [f"class{c}/image{i}.png" for c in "dacb" for i in (10, 2, 1)]
    return {path: noise(seed, 84, 84, 3) for seed, path in enumerate(sorted(paths))}


def test_a_class_image_tree_becomes_a_pool_of_its_own_pixels(tmp_path):
    pictures = small_tree()
    files = {path: encoded(pixels) for path, pixels in pictures.items()}
    files |= {"classa/.hidden.png": b"", "classa/notes.txt": b"", ".git/x.png": b"", "a.csv": b""}
    source = write(tmp_path / "mine", files)
    pool = datasets.prepare("folder", source, tmp_path / "root")
    assert pool.name == "folder"
    assert pool.images.shape == (12, 3, 84, 84)
    assert [c.name for c in pool.classes] == ["classa", "classb", "classc", "classd"]
    assert {c.group for c in pool.classes} == {folder.UNGROUPED}
    expected = [pictures[path] for path in sorted(pictures)]  # image1, image10, image2
    assert (pool.images == np.stack(expected).transpose(0, 3, 1, 2)).all()
    assert sorted(c.split for c in pool.classes) == ["test", "train", "train", "val"]
    assert pool.about["layout"] == "class/image"
    assert pool.about["ignored"] == 4
    assert pool.about["source"] == str(source)
    assert open_pool(tmp_path / "root" / "folder").fingerprint == pool.fingerprint
    lines = datasets.verify("folder", tmp_path / "root")
    assert "4 hidden or other files ignored" in lines[-1]


def test_small_gray_images_become_28x28_in_one_channel(tmp_path):
    gray = {f"g{c}/class/{i}.png": noise(10 * c + i, 28, 28) for c in range(2) for i in (1, 2)}
    gray["g1/class/3.png"] = noise(9, 32, 20) > 127
    source = write(tmp_path / "mine", {path: encoded(pixels) for path, pixels in gray.items()})
    pool = folder.prepare(tmp_path / "root" / "folder", source)
    assert pool.images.shape == (5, 1, 28, 28)
    assert (pool.images[0, 0] == gray["g0/class/1.png"]).all()
    assert [c.group for c in pool.classes] == ["g0", "g1"]
    assert "gray" in pool.about["prepared"]
    assert "2 groups" in folder.describe(pool)


def test_given_splits_are_kept_and_val_may_be_absent(tmp_path):
    paths = ["test/d/1.png", "train/c/1.png", "train/a/2.PNG", "train/a/1.jpeg", "val/b/1.png"]
    classes = planned(named(tmp_path / "all", *paths))
    assert [(c.split, c.name) for c in classes] == [
        ("train", "a"), ("train", "c"), ("val", "b"), ("test", "d"),
    ]  # fmt: skip
    assert [Path(image.path).name for image in classes[0].sources] == ["1.jpeg", "2.PNG"]
    classes = planned(named(tmp_path / "two", *paths[:-1]))
    assert {c.split for c in classes} == {"train", "test"}


def test_groups_are_never_cut(tmp_path):
    rng = random.Random(1)
    paths = [
        f"group{g:02}/class{c}/{i}.png"
        for g in range(25)
        for c in range(rng.randint(1, 5))
        for i in range(2)
    ]
    classes = planned(named(tmp_path, *paths))
    split_of = {c.group: c.split for c in classes}
    assert all(c.split == split_of[c.group] for c in classes)
    assert [list(split_of.values()).count(split) for split in SPLITS] == [16, 4, 5]
    keys = [(c.group, c.name) for c in classes]
    assert keys == sorted({tuple(path.split("/")[:2]) for path in paths})
    assert all(len(c.sources) == 2 for c in classes)


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(2, (1, 0, 1)), (3, (2, 0, 1)), (4, (2, 1, 1)), (5, (3, 1, 1)), (100, (64, 16, 20))],
)
def test_classes_are_split_64_16_20_with_one_each_in_train_and_test(tmp_path, count, sizes):
    units = [f"class{i}" for i in range(count)]
    splits = folder.portable_split(units, "class", tmp_path)
    assert tuple(splits.count(split) for split in SPLITS) == sizes


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ((), "no images below .*mine .0 other files.*class/image"),
        (("a/notes.txt", "b/.1.png"), "no images below .*mine .2 other files"),
        (("1.png", "2.png"), "images in no class, 1.png"),
        (("a/1.png", "b/c/1.png"), "mixes levels, a/1.png and b/c/1.png"),
        (("a/1.png", "a/c/1.png"), "mixes levels, a/1.png and a/c/1.png"),
        (("a/b/c/1.png",), "a/b/c/1.png is too deep"),
        (("train/1.png", "test/1.png"), "images in a split but in no class, test/1.png"),
        (("train/a/1.png", "x/b/1.png"), "holds train and 1 other folders"),
        (("Train/a/1.png", "Test/b/1.png"), "holds Test, Train and 0 other .* train, test"),
        (("train/a/1.png", "validation/b/1.png", "test/c/1.png"), "holds test, train, validation"),
        (("train/a/1.png", "test/a/1.png"), "class a is in test and in train"),
        (("a/1.png",), "has 1 class, a; at least 2 are needed"),
        (("a/b/1.png", "a/c/1.png"), "has 1 group, a; at least 2 are needed"),
        (("a/1.png", "b/\udcff.png"), "mine/b/.udcff.png' has a name that is not UTF-8"),
    ],
)
def test_each_tree_that_cannot_be_used_gets_one_clear_line(tmp_path, paths, message):
    (tmp_path / "mine").mkdir()
    source = named(tmp_path / "mine", *paths)
    with pytest.raises(InputError, match=message) as caught:
        folder.prepare(tmp_path / "root" / "folder", source)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    "damaged", [b"", encoded(noise(0, 84, 84, 3))[:5000]], ids=["empty", "truncated"]
)
def test_a_damaged_image_is_named_and_leaves_no_pool(tmp_path, damaged):
    files = {path: encoded(pixels) for path, pixels in small_tree().items()}
    source = write(tmp_path / "mine", files | {"classc/image2.png": damaged})
    with pytest.raises(InputError, match="classc/image2.png") as caught:
        folder.prepare(tmp_path / "root" / "folder", source)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "root").iterdir())


# Names and sizes of one's own


def test_own_images_have_a_name_and_a_size_and_are_found_by_it(tmp_path):
    files = {path: encoded(pixels) for path, pixels in small_tree().items()}
    source, root = write(tmp_path / "mine", files), tmp_path / "root"
    pool = datasets.prepare("folder", source, root, own_name="crows", size=32)
    assert (pool.name, pool.images.shape) == ("crows", (12, 3, 32, 32))
    assert datasets.load("crows", root).fingerprint == pool.fingerprint
    assert datasets.framing(pool) == Whole(32, 32)
    assert "class/image below" in datasets.verify("crows", root)[2]
    assert datasets.prepared(root)["crows"].startswith("4 classes, 12 images in ")
    assert datasets.prepare("folder", source, root).images.shape == (12, 3, 84, 84)
    with pytest.raises(InputError, match="unknown data set 'crow': .*did you mean 'crows'"):
        datasets.load("crow", root)


def test_another_source_does_not_replace_a_pool(tmp_path):
    files = {path: encoded(pixels) for path, pixels in small_tree().items()}
    first, second = write(tmp_path / "a", files), write(tmp_path / "b", files)
    made = datasets.prepare("folder", first, tmp_path / "root")
    with pytest.raises(InputError, match=r"holds the images of .*a: give these another --name"):
        datasets.prepare("folder", second, tmp_path / "root")
    assert datasets.load("folder", tmp_path / "root").about == made.about
    datasets.prepare("folder", second, tmp_path / "root", own_name="second")
    save_pool(tmp_path / "old" / "folder", "folder", made.images, made.classes, {})
    with pytest.raises(InputError, match="holds the images of another data set"):
        datasets.prepare("folder", second, tmp_path / "old")
