"""`--encoder hf:OWNER/NAME` against a hub on this machine: what it downloads, and what it makes of it."""

import csv
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("huggingface_hub", reason="the extra `hub` is not installed")
pytest.importorskip("tokenizers", reason="the extra `hub` is not installed")
pytest.importorskip("onnx", reason="a repository of the hub is made with it")

from huggingface_hub import constants

from semishot.data.framing import Middle, Whole
from semishot.errors import InputError
from semishot.image_encoders import load_encoder, open_encoder, save_encoder
from semishot.label import LabelRequest
from semishot.label.finish import save_model
from semishot.sorter.encoders.hub import find, options_of
from semishot.sorter.encoders.names import OnnxOptions
from support import hub as made
from support.commands import printed, refusal
from support.images import noise
from support.labeling import serving
from support.own_images import folders, save


def use(address, monkeypatch):
    """As HF_ENDPOINT does before the package is imported."""
    template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """A hub, and an empty cache; the files that were asked for."""
    files: list[str] = []
    with made.hub(files) as address:
        use(address, monkeypatch)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        yield files


def test_the_graph_of_images_is_taken_and_prepared_as_the_repository_says(asked):
    encoder, image = open_encoder("hf:some/clip", view="middle"), noise(0, 50, 80)
    wanted = ("preprocessor_config.json", "onnx/vision_model.onnx")
    assert asked == [f"some/clip: {name}" for name in wanted]
    assert encoder.prepare == Middle(made.SIDE, made.SIDE, 0.8, bicubic=False)
    pixels = encoder.prepare(image)
    scaled = (pixels / 255 - made.CONFIG["image_mean"]) / made.CONFIG["image_std"]
    weights = np.random.default_rng(0).normal(size=(3, made.FEATURES)).astype(np.float32)
    truth = scaled.mean((0, 1)) @ weights
    np.testing.assert_allclose(encoder.encode([pixels])[0], truth, rtol=1e-4, atol=1e-4)
    whole = open_encoder("hf:some/dino", view="whole")
    assert whole.prepare == Whole(made.SIDE, made.SIDE, bicubic=True)
    half = open_encoder("hf:some/dino", OnnxOptions(encoder_crop=0.5), "middle")
    assert half.prepare.share == 0.5


def test_weights_in_another_file_of_the_repository_are_taken_in(asked):
    image = noise(0, 50, 80)
    large, dino = (open_encoder(f"hf:some/{name}", view="middle") for name in ("large", "dino"))
    assert "some/large: onnx/model.onnx_data" in asked
    pixels = [dino.prepare(image)]
    assert np.array_equal(large.encode(pixels), dino.encode(pixels))


def test_it_is_downloaded_once_and_saved_with_revision_and_digest(asked, monkeypatch, tmp_path):
    encoder, image = open_encoder("hf:some/dino"), noise(0, 50, 80)
    before = list(asked)
    use("http://127.0.0.1:9", monkeypatch)
    again = open_encoder("hf:some/dino")
    assert asked == before
    assert again.identity == encoder.identity
    (tmp_path / "saved").mkdir()
    save_encoder(again, tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "encoder.json").read_text())
    digest = hashlib.sha256(made.image_graph("pooler_output")).hexdigest()
    assert saved["encoder"] == "hf:some/dino"
    assert f"revision {made.REVISION}, sha256 {digest}" in saved["notice"]
    loaded = load_encoder(tmp_path / "saved")
    assert loaded.notice == saved["notice"]
    pixels = [encoder.prepare(image)]
    assert np.array_equal(loaded.encode(pixels), encoder.encode(pixels))
    with pytest.raises(
        InputError, match="cannot get hf:some/clip from http.*:9, and it has not been"
    ):
        open_encoder("hf:some/clip")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("hf:some/none", "hf:some/none is no repository of the hub, or a private one"),
        ("hf:some/clip@v9", "hf:some/clip has no such revision"),
        ("hf:some/torch", "hf:some/torch has no vision_model.onnx or model.onnx"),
        ("hf:some/plain", "hf:some/plain has no preprocessor_config.json"),
        ("hf:some/padded", "preprocessor_config.json: its preprocessing is unknown .do_pad"),
        ("hf:some/box", "preprocessor_config.json: its preprocessing is unknown .resample 4"),
        ("hf:some/wide", "8 x 9 pixels, not a square.; its preprocessing is unknown"),
        ("hf:../etc", "is not hf:OWNER/NAME"),
        ("hf:one", "is not hf:OWNER/NAME, as in hf:Xenova/dinov2-small"),
    ],
)
def test_what_cannot_be_taken_is_one_line(name, line, asked):
    with pytest.raises(InputError, match=line) as caught:
        open_encoder(name)
    assert "\n" not in str(caught.value)
    assert not [file for file in asked if file.endswith((".safetensors", ".bin"))]


def test_names_of_classes_have_features_of_the_same_space(asked):
    encoder = open_encoder("hf:some/clip")
    features = encoder.embed_names(["red fox", "badger", "unheard"])
    token = dict(zip(["?", "", *made.WORDS], made.text_rows(), strict=True))
    phrase = [token[word] for word in ("a", "photo", "of", "a")]
    for name, row in zip([["red", "fox"], ["badger"], ["?"]], features, strict=True):
        truth = np.mean([*phrase, *(token[word] for word in name)], 0)
        np.testing.assert_allclose(row, truth, rtol=1e-4)
    with pytest.raises(InputError, match="some/dino has no text_model.onnx: names need an encoder"):
        open_encoder("hf:some/dino").embed_names(["red fox"])


@pytest.mark.parametrize(
    ("config", "size", "share"),
    [
        ({"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}}, 224, 0.875),
        ({"size": {"shortest_edge": 224}, "crop_size": 224}, 224, 1.0),
        ({"size": {"height": 224, "width": 224}, "do_center_crop": None}, 224, 1.0),
        ({"size": {"shortest_edge": 224}, "do_center_crop": False, "crop_pct": 0.875}, 224, 0.875),
        ({"size": {"shortest_edge": 384}, "do_center_crop": False, "crop_pct": 0.875}, 384, 1.0),
    ],
)
def test_size_and_crop_as_the_families_write_them(config, size, share):
    options = options_of(made.CONFIG | {"crop_size": None} | config, "x")
    assert (options.encoder_size, options.encoder_crop) == (size, share)


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", None)
    with pytest.raises(InputError, match=r"needs huggingface_hub: pip install 'semishot\[hub\]'"):
        find("some/clip")


def test_classify_by_the_hub_then_predict_without_it(tmp_path):
    """As users do: HF_ENDPOINT, a command, and a saved model that needs no network."""
    labeled, pile = folders(tmp_path, shots=2, pile=3, strangers=1)
    command = [sys.executable, "-m", "semishot"]
    classify = ["classify", "--labeled", labeled, "--unlabeled", pile, "--out", tmp_path / "out"]
    home = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}

    def run(*words, address):
        env = {**os.environ, **home, "HF_ENDPOINT": address}
        return subprocess.run(
            [*command, *map(str, words)], env=env, capture_output=True, text=True, check=False
        )

    with made.hub([]) as address:
        done = run(*classify, "--encoder", "hf:some/clip", "--device", "cpu", address=address)
    assert "seen by the encoder hf:some/clip" in done.stdout, done.stderr
    assert run("predict", tmp_path / "out", pile, address=address).returncode == 0
    again = run(*classify, "--encoder", "hf:some/clip", "--device", "cpu", address=address)
    assert again.returncode == 0, again.stderr
    fails = run(*classify, "--encoder", "hf:some/dino", address=address)
    assert (fails.returncode, fails.stderr.count("\n")) == (2, 1)
    assert "has not been downloaded before" in fails.stderr


@pytest.fixture
def colors(asked, tmp_path):
    """Red and blue pictures; of green ones there are a few."""
    rng, pile = np.random.default_rng(3), tmp_path / "pile"
    paints = {"red": (210, 40, 50), "blue": (40, 50, 210), "green": (40, 200, 60)}
    for color, paint in paints.items():
        for number in range(4 if color == "green" else 12):
            pixels = np.array(paint) + rng.integers(-40, 40, (40, 50, 3))
            save(Image.fromarray(pixels.astype(np.uint8)), pile / f"{color}-{number}.png")
    return pile


def labels_in(path):
    with path.open(encoding="utf-8") as file:
        return {Path(row["path"]).name: row["nearest_class"] for row in csv.DictReader(file)}


def test_names_sort_before_the_first_label_and_labels_join_them(colors, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["--unlabeled", colors, "--out", out, "--encoder", "hf:some/clip", "--device", "cpu"]
    printed(capsys, "classify", *command, "--names", "red, blue")
    found = labels_in(out / "predictions.csv")
    assert len(found) == 28
    for name, label in found.items():
        assert name.startswith(("green", label))
    labeled = tmp_path / "labeled"
    save(Image.new("RGB", (40, 50), (40, 200, 60)), labeled / "green" / "one.png")
    printed(capsys, "classify", *command, "--names", "red,blue", "--labeled", labeled)
    found = labels_in(out / "predictions.csv")
    assert all(name.startswith(label) for name, label in found.items() if name != "one.png")
    assert json.loads(printed(capsys, "predict", out, colors, "--json"))


def test_label_begins_with_the_named_classes_filled(colors, tmp_path):
    request = LabelRequest(
        colors, out=tmp_path / "out", encoder="hf:some/clip", names="red, blue", device="cpu"
    )
    for _ in range(2):  # the second time, the classes are there
        with serving(request) as (running, client):
            state = client.until(lambda state: state["rows"] == 28 and state["judged"])
            assert [name for _, name in state["classes"]] == ["red", "blue"]
            files = {image: name for name, image in client.names(state).items()}
            for image, guess in zip(state["image"], state["guess"], strict=True):
                assert files[image].startswith(("green", state["classes"][guess][1]))
            save_model(running.session)
    green = next(image for image, name in files.items() if name.startswith("green"))
    with serving(replace(request, names=None)) as (_, client):
        client.until(lambda state: state["rows"] == 28)
        assert not client.say(kind="new", name="green", images=[green])["guess"].count(0)
    with serving(replace(request, encoder="omniglot")) as (running, client):
        client.until(lambda _: "does not know words" in running.session.pile.progress.problem)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--names", "red,blue", "--encoder", "hf:some/dino"], "has no text_model.onnx: names"),
        (["--names", "red,blue", "--encoder", "omniglot"], "omniglot does not know words: names"),
        (["--names", "red, Red", "--encoder", "hf:some/clip"], "must be different names of"),
        (["--names", " , ", "--encoder", "hf:some/clip"], "must be different names of classes"),
        (["--names", "red,stranger", "--encoder", "hf:some/clip"], "must be different names"),
        ([], "pass --labeled, or --names of classes"),
    ],
)
def test_names_that_cannot_be_used_are_one_line(words, line, colors, tmp_path, capsys):
    command = ["classify", "--unlabeled", colors, "--out", tmp_path / "out", *words]
    assert line in refusal(capsys, *command)
