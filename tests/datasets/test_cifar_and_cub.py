"""CIFAR-FS, FC100 and CUB from small archives: each image in its class, each class in its published split."""

import io
import pickle
import tarfile

import numpy as np
import pytest
from PIL import Image

from semishot import datasets
from semishot.data import cifar100
from semishot.datasets import cifar_fs, cub, fc100
from support.preparing import prepare_refusal

COARSE = ["fish", "insects", "large_carnivores"]
FINE = {"ray": "fish", "bee": "insects", "bear": "large_carnivores", "leopard": "large_carnivores"}
FINE |= {"beetle": "insects"}
COUNTS = {"train": 7, "test": 3}


def pixels(file: str, index: int) -> np.ndarray:
    """(3, 32, 32), unlike those of any other image; red, green and blue differ."""
    drawn = np.random.default_rng([len(file), index]).integers(0, 80, (3, 32, 32))
    return (drawn + np.array([0, 60, 160])[:, None, None]).astype(np.uint8)


@pytest.fixture
def parts() -> dict[str, bytes]:
    """The files of a small CIFAR-100: two files, five classes in turn."""
    names = sorted(FINE)
    made = {"meta": {"fine_label_names": names, "coarse_label_names": COARSE}}
    for file, count in COUNTS.items():
        fine = [index % len(names) for index in range(count * len(names))]
        made[file] = {
            "data": np.stack([pixels(file, i).ravel() for i in range(len(fine))]),
            "fine_labels": fine,
            "coarse_labels": [COARSE.index(FINE[names[label]]) for label in fine],
        }
    return {name: pickle.dumps(content, protocol=2) for name, content in made.items()}


def write(parts: dict[str, bytes], source, packed: bool) -> None:
    source.mkdir()
    if not packed:
        (source / cifar100.FOLDER).mkdir()
        for name, content in parts.items():
            (source / cifar100.FOLDER / name).write_bytes(content)
        return
    with tarfile.open(source / cifar100.ARCHIVE, "w:gz") as archive:
        for name, content in parts.items():
            about = tarfile.TarInfo(f"{cifar100.FOLDER}/{name}")
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("name", "train", "val", "test"),
    [
        ("cifar-fs", "bear bee ray", "beetle", "leopard"),
        ("fc100", "ray", "bear leopard", "bee beetle"),
    ],
)
def test_cifar_100_in_two_splits(name, train, val, test, packed, parts, tmp_path):
    write(parts, tmp_path / "source", packed)
    pool = datasets.prepare(name, tmp_path / "source", tmp_path / "data")
    for split, wanted in {"train": train, "val": val, "test": test}.items():
        assert sorted(c.name for c in pool.of_split(split)) == wanted.split()
    assert {c.name: c.group for c in pool.classes} == FINE
    names = sorted(FINE)
    for each in pool.classes:
        own = pool.images[each.start : each.start + each.count]
        places = [(file, i) for file, count in COUNTS.items() for i in range(count)]
        wanted = [pixels(file, i * len(names) + names.index(each.name)) for file, i in places]
        np.testing.assert_array_equal(own, np.stack(wanted))
    assert datasets.verify(name, tmp_path / "data")


def test_published_numbers_of_classes():
    for lists, counts in ((cifar_fs.CLASSES, (16, 20)), (fc100.SUPERCLASSES, (4, 4))):
        val, test = (lists[split].split() for split in ("val", "test"))
        assert (len({*val}), len({*test})) == counts
        assert not {*val} & {*test}


def test_a_damaged_cifar_100_is_one_line(parts, tmp_path):
    (work := tmp_path / "work").mkdir()
    assert "no CIFAR-100 in" in prepare_refusal(fc100.prepare, tmp_path, work)
    write({**parts, "test": parts["test"][:-40]}, tmp_path / "source", packed=True)
    assert cifar100.ARCHIVE in prepare_refusal(fc100.prepare, tmp_path / "source", work)
    write({**parts, "meta": parts["train"]}, tmp_path / "other", packed=False)
    assert "get CIFAR-100" in prepare_refusal(cifar_fs.prepare, tmp_path / "other", work)


def test_cub_splits_its_classes_in_turn(tmp_path):
    images = tmp_path / "source" / "CUB_200_2011" / "images"
    for number in range(1, 201):
        folder = images / f"{number:03}.Bird_{number}"
        folder.mkdir(parents=True)
        for index in range(1 + number % 2):
            color = (number, 255 - number, 100 + index)
            Image.new("RGB", (84, 84), color).save(folder / f"b{index}.jpg", quality=95)
    pool = datasets.prepare("cub", tmp_path / "source", tmp_path / "data")
    of_split = {s: [c.name for c in pool.of_split(s)] for s in ("train", "val", "test")}
    assert of_split["train"] == [f"Bird_{n}" for n in range(1, 201, 2)]
    assert of_split["val"] == [f"Bird_{n}" for n in range(2, 201, 4)]
    assert of_split["test"] == [f"Bird_{n}" for n in range(4, 201, 4)]
    seventh = next(c for c in pool.classes if c.name == "Bird_7")
    assert seventh.count == 2
    assert abs(int(pool.images[seventh.start + 1, 2].mean()) - 101) <= 2
    (work := tmp_path / "work").mkdir()
    for file in (images / "200.Bird_200").iterdir():
        file.unlink()
    assert "Bird_200 holds no .jpg" in prepare_refusal(cub.prepare, tmp_path / "source", work)
    (images / "200.Bird_200").rmdir()
    assert "has 199 numbered" in prepare_refusal(cub.prepare, tmp_path / "source", work)
