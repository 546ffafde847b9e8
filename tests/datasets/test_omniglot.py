"""Omniglot: Appendix A's split, exact rotations, and a clear line for each damage to a source."""

import random
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from semishot.data.pool import ImagePool
from semishot.datasets import omniglot
from semishot.errors import InputError
from support.images import encoded
from support.preparing import prepare_refusal
from support.real_data import REAL_DATA

REAL = REAL_DATA / "omniglot"
SMALL = {"train": {"Greek": 2, "Gurmukhi": 1}, "val": {"Hebrew": 1}, "test": {"Gurmukhi": 1}}
FIRST = "images_background/Greek/character01/0001_01.png"
HALVES = ("images_background", "images_evaluation")
Files = dict[str, bytes]


def drawn_png(pixels: np.ndarray) -> bytes:
    """In black and white, as Omniglot's."""
    return encoded(Image.fromarray(pixels).convert("1"))


def drawing(seed: int) -> np.ndarray:
    """A black block somewhere on white, 105x105."""
    pixels = np.full((105, 105), 255, np.uint8)
    top, left = random.Random(seed).sample(range(5, 60), 2)
    pixels[top : top + 30, left : left + 40] = 0
    return pixels


def drawing_paths() -> list[str]:
    characters = [
        ("images_background/Greek/character01", 1),
        ("images_background/Greek/character02", 2),
        ("images_background/Hebrew/character01", 3),
        ("images_evaluation/Gurmukhi/character01", 4),
        ("images_evaluation/Gurmukhi/character02", 5),
    ]
    return [f"{c}/{number:04d}_{i:02d}.png" for c, number in characters for i in range(1, 21)]


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    """A complete Omniglot of five characters, by path."""
    monkeypatch.setattr(omniglot, "CHARACTERS", SMALL)
    return {path: drawn_png(drawing(seed)) for seed, path in enumerate(drawing_paths())}


def write(source: Path, files: Files, zipped: Sequence[str] = HALVES) -> Path:
    """Lay out the files as a user has them: each half an archive or an extracted folder."""
    source.mkdir()
    shuffled = random.Random(0).sample(list(files), len(files))  # order must not matter
    for half in zipped:
        with zipfile.ZipFile(source / f"{half}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in shuffled:
                if half in path:
                    archive.writestr(path, files[path])
    for path in shuffled:
        if not any(half in path for half in zipped):
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_bytes(files[path])
    return source


def without(part: str) -> Callable[[Files], Files]:
    return lambda files: {path: content for path, content in files.items() if part not in path}


def plus(path: str, content: bytes) -> Callable[[Files], Files]:
    return lambda files: files | {path: content}


refusal = partial(prepare_refusal, omniglot.prepare)


def test_appendix_a_split() -> None:
    table = omniglot.CHARACTERS
    assert [len(table[s]) for s in ("train", "val", "test")] == [33, 5, 13]
    assert [sum(table[s].values()) for s in ("train", "val", "test")] == [1028, 172, 423]
    assert len({a for alphabets in table.values() for a in alphabets}) == 50
    split = omniglot.split_of_characters()
    assert len(split) == 1623
    for number in range(1, 46):
        expected = "train" if number <= 41 else "test"
        assert split["Gurmukhi", f"character{number:02d}"] == expected


def test_rotations_move_each_pixel_exactly() -> None:
    upright = np.random.default_rng(0).integers(0, 256, (2 * 20, 28, 28), dtype=np.uint8)
    rotated = omniglot.rotations_as_classes(upright)
    assert rotated.shape == (2, 4, 20, 28, 28)
    for character, which in ((0, 0), (0, 19), (1, 7)):
        before = upright[character * 20 + which]
        by_rotation = rotated[character, :, which]
        for row in range(28):
            for column in range(28):
                ink = before[row, column]
                assert by_rotation[0, row, column] == ink
                assert by_rotation[1, 27 - column, row] == ink  # counter-clockwise
                assert by_rotation[2, 27 - row, 27 - column] == ink
                assert by_rotation[3, column, 27 - row] == ink


def test_warped_rotations_move_down_a_pixel_at_each_turn_and_lose_a_row() -> None:
    """As the authors' code warps: each quarter turn is also a step down, four in a row make `rot000`."""
    side = omniglot.SIDE
    upright = np.random.default_rng(3).integers(0, 256, (20, side, side)).astype(np.uint8)
    warped = omniglot.rotations_as_classes(upright, "warped")[0]  # (4, 20, 28, 28)
    before = upright
    for turns in (1, 2, 3, 4):
        after = np.zeros_like(before)
        for y in range(1, side):
            for x in range(side):
                after[:, y, x] = before[:, x, side - y]  # rot90 puts [y, x] at [27 - x, y]
        assert np.array_equal(warped[turns % 4], after)
        before = after
    assert np.array_equal(warped[0][:, 1:, 1:], upright[:, 1:, 1:])
    assert not warped[0][:, 0].any()
    assert not warped[0][:, :, 0].any()


def test_pool_of_a_small_omniglot(tmp_path, files):
    pool = omniglot.prepare(tmp_path / "pool", write(tmp_path / "source", files))
    assert pool.images.shape == (5 * 4 * 20, 1, 28, 28)
    assert [(c.group, c.name) for c in pool.classes[:5]] == [
        ("Greek", "character01-rot000"),
        ("Greek", "character01-rot090"),
        ("Greek", "character01-rot180"),
        ("Greek", "character01-rot270"),
        ("Greek", "character02-rot000"),
    ]
    assert {(c.group, c.name[:11], c.split) for c in pool.classes} == {
        ("Greek", "character01", "train"),
        ("Greek", "character02", "train"),
        ("Gurmukhi", "character01", "train"),
        ("Gurmukhi", "character02", "test"),
        ("Hebrew", "character01", "val"),
    }
    assert [c.start for c in pool.classes] == list(range(0, 400, 20))
    assert omniglot.describe(pool) == [
        "5 characters in 3 alphabets, 20 drawings each",
        "12/4/4 train/val/test classes with rotations",
        "differs from the published Omniglot",
    ]
    assert "preparation" not in pool.about
    how: dict[str, Any] = {"reduction": "cubic", "rotations": "warped"}
    theirs = omniglot.prepare(tmp_path / "theirs", tmp_path / "source", **how)
    assert theirs.about["preparation"] == "cubic-warped"
    assert omniglot.describe(theirs)[-1] == (
        "28x28 cubic as OpenCV's, ink 255 on 0, warped rotations as classes"
    )


def test_zip_folder_and_mixture_give_the_same_pool(tmp_path, files):
    pools = [
        omniglot.prepare(tmp_path / f"pool{i}", write(tmp_path / f"source{i}", files, zipped))
        for i, zipped in enumerate((HALVES, (), HALVES[:1], HALVES[1:]))
    ]
    for pool in pools[1:]:
        assert np.array_equal(pool.images, pools[0].images)
        assert pool.fingerprint == pools[0].fingerprint
        assert pool.about == pools[0].about


def test_corrupt_member_is_named(tmp_path, files):
    source = write(tmp_path / "source", files)
    archive = source / "images_background.zip"
    with zipfile.ZipFile(archive) as opened:
        start = opened.getinfo(FIRST).header_offset
    content = bytearray(archive.read_bytes())
    content[start + 30 + len(FIRST) + 20] ^= 0xFF  # 30 bytes of header, the name, then the data
    archive.write_bytes(content)
    assert refusal(source, tmp_path).startswith(f"cannot read {archive}/{FIRST} (")


WHITE = np.full((105, 105), 255, np.uint8)
DAMAGES: list[tuple[Callable[[Files], Files], str]] = [
    (without("Hebrew"), "no alphabet Hebrew in "),
    (without("Greek/character02"), "no character Greek/character02 in "),
    (
        plus("images_background/Klingon/character01/1.png", drawn_png(WHITE)),
        "unknown alphabet Klingon",
    ),
    (
        plus("images_background/Greek/character99/1.png", drawn_png(WHITE)),
        "unknown character Greek/character99 in ",
    ),
    (without(FIRST), "19 drawings, not 20, of Greek/character01 in "),
    (
        plus("images_evaluation/Greek/character01/0001_01.png", drawn_png(WHITE)),
        "21 drawings, not 20, of Greek/character01 in ",
    ),
    (plus(FIRST, b"no image"), f"{FIRST} (not a PNG file); "),
    (plus(FIRST, drawn_png(WHITE)[:60]), f"{FIRST} ("),
    (plus(FIRST, drawn_png(WHITE[:, :104])), f"{FIRST} is 104x105, not 105x105; "),
]


@pytest.mark.parametrize(("damage", "expected"), DAMAGES)
def test_damage_is_named(tmp_path, files, damage, expected):
    assert expected in refusal(write(tmp_path / "zips", damage(files)), tmp_path)


def test_a_download_that_fails_is_one_line(tmp_path, monkeypatch):
    """The two ways in which pooch fails: no network, and another checksum."""
    for error in (OSError("refused"), ValueError("hash of downloaded file does not match")):
        monkeypatch.setattr(omniglot.pooch, "retrieve", Mock(side_effect=error))
        with pytest.raises(
            InputError, match=r"cannot download https://\S+background.zip .*--source"
        ):
            omniglot.download(tmp_path / "raw")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> ImagePool:
    if not REAL.is_dir():
        pytest.skip(f"real Omniglot not found at {REAL}")
    return omniglot.prepare(tmp_path_factory.mktemp("real") / "omniglot", REAL)


def test_real_omniglot_is_the_published_one(real: ImagePool) -> None:
    assert real.images.shape == (4 * 1623 * 20, 1, 28, 28)
    assert real.about["pixels"] == omniglot.PUBLISHED_PIXELS
    assert omniglot.describe(real) == [
        "1,623 characters in 50 alphabets, 20 drawings each",
        "4,112/688/1,692 train/val/test classes with rotations",
        "the published Omniglot, complete",
    ]


DRAWN = np.array(
    [
        [0, 0, 255, 255, 0, 0, 0],
        [0, 255, 255, 0, 0, 0, 255],
        [0, 255, 0, 0, 0, 255, 255],
        [255, 255, 0, 0, 255, 255, 0],
        [255, 0, 0, 255, 255, 0, 0],
    ],
    np.uint8,
)
SHADED = (np.arange(35).reshape(5, 7) ** 2 * 37 % 251).astype(np.uint8)


def test_cubic_reduction_gives_opencvs_numbers():
    """Of version 5.0.0: `cv2.resize(image, (3, 3), interpolation=cv2.INTER_CUBIC)`, 5x7 pixels to 3x3."""
    drawn, shaded = (
        omniglot.reduced(Image.fromarray(image), "cubic", 3).astype(int)
        for image in (DRAWN, SHADED)
    )
    assert drawn.tolist() == [[34, 175, 14], [203, 0, 255], [149, 175, 30]]
    expected = np.array([[33, 117, 133], [83, 151, 98], [162, 190, 131]])
    assert np.abs(shaded - expected).max() <= 1
