"""`--encoder onnx:FILE`: the features are what the file says of images, and wrong files are one line."""

import json
import logging
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("onnx", reason="graphs of other people's networks are built with it")
pytest.importorskip("onnxscript", reason="torch exports with it")

import onnx.parser
import onnxruntime

from semishot import PrototypeClassifier
from semishot.errors import InputError
from semishot.image_encoders import ImageEncoder, load_encoder, open_encoder, save_encoder
from semishot.sorter.encoders.names import OnnxOptions
from semishot.sorter.export import export
from support.commands import printed, refusal
from support.own_images import folders

RNG = np.random.default_rng(0)
SIDE = 20
PLAIN = {"encoder_mean": (0.0,), "encoder_std": (1 / 255,)}
CLOSE = {"rtol": 1e-4, "atol": 1e-3}
MEANS = "axes = Constant<value_ints=[2, 3]>() y = ReduceMean<keepdims=0>(x, axes)"
USUAL = "float[b,3,20,20] x", "float[b,n] y"
MEANS_LAST = MEANS.replace("2, 3", "1, 2")
DOCUMENT = Path(__file__).parents[3] / "docs" / "encoders.md"


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter's warnings about itself and about torchvision, which is not needed."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(action="ignore"):
        yield
    logging.disable(logging.NOTSET)


def written(
    path: Path,
    body: str = MEANS,
    takes: str = USUAL[0],
    gives: str = USUAL[1],
    opset: int = 18,
) -> Path:
    """A graph by hand; its features are the means over pixels."""
    head = f'<ir_version: 10, opset_import: ["": {opset}, "evil.lib": 1]>'
    model = onnx.parser.parse_model(f"{head} g ({takes}) => ({gives}) {{ {body} }}")
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Path:
    """(B, 3, H, W) -> (B, 5): sums of the means over pixels, with weights."""
    path = tmp_path_factory.mktemp("network") / "small.onnx"
    body = f"{MEANS.replace('y =', 'means =')} y = MatMul(means, w)"
    model = onnx.load_model(written(path, body, f"{USUAL[0]}, float[3,5] w"))
    del model.graph.input[1]
    weights = RNG.normal(size=(3, 5)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save_model(model, path)
    return path


def images(count: int = 3, channels: int = 3) -> np.ndarray:
    return RNG.integers(0, 256, (count, SIDE, SIDE, channels), np.uint8)


def middle_of(name: str, options: OnnxOptions | None = None) -> ImageEncoder:
    return open_encoder(name, options, "middle")


def test_the_features_are_those_of_the_network(network):
    encoder = middle_of(f"onnx:{network}")
    assert (encoder.name, encoder.features) == ("onnx:small.onnx", 5)
    assert encoder.shape == (SIDE, SIDE, 3)
    assert "ImageNet's mean and std" in encoder.notes[0]
    half = middle_of(f"onnx:{network}", OnnxOptions(encoder_mean=(0.5,), encoder_std=(0.25,)))
    assert half.notes == ()
    assert half.identity != encoder.identity
    given, session = images(7), onnxruntime.InferenceSession(str(network))
    imagenet = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    for opened, (mean, std) in ((encoder, imagenet), (half, (0.5, 0.25))):
        scaled = ((given / 255 - np.array(mean)) / np.array(std)).transpose(0, 3, 1, 2)
        truth = session.run(None, {"x": scaled.astype(np.float32)})[0]
        np.testing.assert_allclose(opened.encode(given), truth, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("takes", "channels", "body"),
    [
        ("float[b,20,20,3]", 3, MEANS_LAST),
        ("float[2,20,20,1]", 1, MEANS_LAST),
        ("float[1,3,20,20]", 3, MEANS),
        ("float[b,num_channels,height,width]", 3, MEANS),
        ("float[b,height,width,channels]", 3, MEANS_LAST),
        ("float16[b,3,20,20]", 3, MEANS),
    ],
)
def test_any_layout_type_and_batch_gives_the_same(takes, channels, body, tmp_path):
    kind = takes.partition("[")[0]
    path = written(tmp_path / "m.onnx", body, f"{takes} x", f"{kind}[b,n] y")
    size = SIDE if "height" in takes else None
    options = OnnxOptions(size, encoder_mean=(0.0,), encoder_std=(1.0,))
    given = images(5, channels)
    features = middle_of(f"onnx:{path}", options).encode(given)
    tolerance = 2e-3 if kind == "float16" else 1e-5
    np.testing.assert_allclose(features, given.mean((1, 2)) / 255, tolerance, tolerance)
    assert features.dtype == np.float32


def test_uint8_pixels_are_given_as_they_are(tmp_path):
    maps = "uint8[b,20,20,3] x", "float[b,20,20,3] y"
    path = written(tmp_path / "m.onnx", "y = Cast<to=1>(x)", *maps)
    given = images(4)
    features = middle_of(f"onnx:{path}").encode(given)
    np.testing.assert_allclose(features, given.mean((1, 2)), rtol=1e-5)
    with pytest.raises(InputError, match="takes uint8 pixels: drop --encoder-mean and"):
        middle_of(f"onnx:{path}", OnnxOptions(encoder_mean=(0.5,), encoder_std=(0.5,)))


TOKENS = "to = Constant<value_ints=[0, 3, 400]>() last_hidden_state = Reshape(x, to)"
GIVES_TOKENS = "float[b,3,400] last_hidden_state"
"""(B, 3, H * W) as tokens of H * W features: the first token is the red channel."""


def test_of_tokens_the_first_or_the_mean_and_of_maps_the_mean(tmp_path):
    given = images(2)
    flat = given.transpose(0, 3, 1, 2).reshape(2, 3, -1)
    path = written(tmp_path / "t.onnx", TOKENS, gives=GIVES_TOKENS)
    first = middle_of(f"onnx:{path}", OnnxOptions(**PLAIN))
    np.testing.assert_allclose(first.encode(given), flat[:, 0], **CLOSE)
    mean = middle_of(f"onnx:{path}", OnnxOptions(**PLAIN, encoder_tokens="mean"))
    np.testing.assert_allclose(mean.encode(given), flat.mean(1), **CLOSE)
    assert mean.identity != first.identity
    for shape in ("[b,3,20,20]", "[b,20,20,3]"):
        maps = f"float{shape} x", f"float{shape} y"
        maps = written(tmp_path / "maps.onnx", "y = Identity(x)", *maps)
        features = middle_of(f"onnx:{maps}", OnnxOptions(**PLAIN)).encode(given)
        np.testing.assert_allclose(features, given.mean((1, 2)), **CLOSE)


def test_of_several_outputs_the_pooled_one_or_the_one_that_is_named(tmp_path):
    body = f"{TOKENS} one = Constant<value_ints=[1]>() "
    body += "pooler_output = ReduceMax<keepdims=0>(last_hidden_state, one)"
    outputs = f"{GIVES_TOKENS}, float[b,400] pooler_output"
    path, given = written(tmp_path / "t.onnx", body, gives=outputs), images(2)
    flat = given.transpose(0, 3, 1, 2).reshape(2, 3, -1)
    pooled = middle_of(f"onnx:{path}", OnnxOptions(**PLAIN))
    np.testing.assert_allclose(pooled.encode(given), flat.max(1), **CLOSE)
    named = OnnxOptions(**PLAIN, encoder_output="last_hidden_state")
    features = middle_of(f"onnx:{path}", named).encode(given)
    np.testing.assert_allclose(features, flat[:, 0], **CLOSE)
    with pytest.raises(
        InputError, match="the outputs last_hidden_state .*, pooler_output .*: name the"
    ):
        middle_of(f"onnx:{path}", OnnxOptions(encoder_output="z"))
    maps = "float[b,3,20,20] p, float[b,3,20,20] q"
    both = written(tmp_path / "b.onnx", "p = Identity(x) q = Identity(x)", gives=maps)
    with pytest.raises(InputError, match=r"has the outputs p tensor.float., q tensor.float.: name"):
        middle_of(f"onnx:{both}")


WRONG = {
    "onnxruntime cannot open": ("y = evil.lib.Evil(x)",),
    "takes x tensor(float) ['b', 3], z tensor(float) ['b', 3], not one input": (
        "y = Add(x, z)",
        "float[b,3] x, float[b,3] z",
    ),
    "takes x tensor(float) ['b', 3], not one": ("y = Identity(x)", "float[b,3] x"),
    "takes x tensor(int32) ['b', 3, 20, 20], not one": (
        MEANS,
        "int32[b,3,20,20] x",
        "int32[b,n] y",
    ),
    "takes x tensor(float) ['b', 5, 20, 20], not one": (MEANS, "float[b,5,20,20] x"),
    "takes images of any size: pass --encoder-size PIXELS": (MEANS, "float[b,3,h,w] x"),
    "outputs y tensor(int64): name the one with the features, of a float type, by": (
        "y = Shape(x)",
        USUAL[0],
        "int64[4] y",
    ),
    "its output 'y' has the shape (1,) for 1 images, not (images, features)": (
        MEANS.replace("2, 3", "1, 2, 3"),
        USUAL[0],
        "float[b] y",
    ),
    "cannot be run on images (1, 3, 20, 20) (": (
        "to = Constant<value_ints=[1, 7]>() y = Reshape(x, to)",
    ),
}


@pytest.mark.parametrize("line", WRONG)
def test_an_unsuitable_file_gives_a_one_line_error(line, tmp_path):
    path = written(tmp_path / "m.onnx", *WRONG[line])
    with pytest.raises(InputError, match=re.escape(line)):
        open_encoder(f"onnx:{path}")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "no file "),
        (b"\x89PNG\r\n\x1a\n junk", "onnxruntime cannot open"),
        (b"not utf-8", "m.onnx: 'utf-8' codec can't decode"),
    ],
)
def test_a_malformed_file_gives_a_one_line_error(content, line, tmp_path, capsys):
    labeled, pile = folders(tmp_path, shots=1, pile=1, strangers=0)
    path = tmp_path / "m.onnx"
    if content == b"not utf-8":
        content = written(path).read_bytes().replace(b"y", b"\xfd")
    if content is not None:
        path.write_bytes(content)
    given = ["--labeled", labeled, "--unlabeled", pile, "--out", tmp_path / "out"]
    assert line in refusal(capsys, "classify", *given, "--encoder", f"onnx:{path}")
    assert not (tmp_path / "out").exists()


def test_flags_that_contradict_the_file_or_another_encoder_give_a_one_line_error(tmp_path):
    path = written(tmp_path / "m.onnx")
    for options, line in [
        (OnnxOptions(encoder_mean=(0.5,)), "pass both --encoder-mean and --encoder-std"),
        (OnnxOptions(30), "takes images of 20 x 20 pixels, not 30: drop --encoder-size"),
        (
            OnnxOptions(encoder_mean=(1.0,) * 2, encoder_std=(1.0,)),
            "--encoder-std must be 3 numbers each, std above 0, not ",
        ),
        (
            OnnxOptions(encoder_mean=(0.0,), encoder_std=(0.0,)),
            "--encoder-std must be 3 numbers each, std above 0, not ",
        ),
    ]:
        with pytest.raises(InputError, match=line):
            middle_of(f"onnx:{path}", options)
    with pytest.raises(InputError, match="--encoder-size and its like are for onnx:FILE and hf:"):
        open_encoder("omniglot", OnnxOptions(30))


@pytest.fixture
def outside(network, tmp_path) -> Path:
    """The small network with its weights in a file beside it."""
    path, data = tmp_path / "outside" / "small.onnx", "small.onnx.data"
    path.parent.mkdir()
    model = onnx.load(str(network))
    onnx.save_model(model, str(path), save_as_external_data=True, location=data, size_threshold=0)
    return path


def test_weights_beside_the_file_are_taken_in(network, outside, tmp_path):
    encoder, given = middle_of(f"onnx:{outside}"), images(3)
    expected = middle_of(f"onnx:{network}").encode(given)
    np.testing.assert_allclose(encoder.encode(given), expected)
    (tmp_path / "saved").mkdir()
    save_encoder(encoder, tmp_path / "saved")
    shutil.rmtree(outside.parent)
    assert np.array_equal(load_encoder(tmp_path / "saved").encode(given), encoder.encode(given))


@pytest.mark.parametrize("location", ["../secret", "/etc/hostname", "", "gone", "link"])
def test_weights_elsewhere_are_not_read(location, outside):
    secret = outside.parent.parent / "secret"
    secret.write_bytes(bytes(10_000))
    (outside.parent / "link").symlink_to(secret)
    model = onnx.load(str(outside), load_external_data=False)
    for tensor in model.graph.initializer:
        tensor.external_data[0].value = location
    outside.write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match="cannot read .* with its weights .*; put them beside it"):
        middle_of(f"onnx:{outside}")


def test_classify_then_predict_from_the_saved_model_alone(network, tmp_path, capsys):
    labeled, pile = folders(tmp_path, shots=3, pile=4, strangers=2)
    own, out = Path(shutil.copy(network, tmp_path / "mine.onnx")), tmp_path / "out"
    given = ["--labeled", labeled, "--unlabeled", pile, "--out", out, "--encoder", f"onnx:{own}"]
    said = printed(capsys, "classify", *given, "--device", "cpu")
    assert "seen by the encoder onnx:mine.onnx." in said
    assert "pixels were scaled by ImageNet's mean and std" in said
    scaled = ["--encoder-mean", 0.5, "--encoder-std", 0.5, 0.5, 0.5, "--encoder-crop", 1]
    said = printed(capsys, "classify", *given, *scaled, "--device", "cpu")  # replaces its model
    assert "pixels were scaled" not in said
    assert len(list((out / "embeddings").iterdir())) == 2  # other options, other features
    own.unlink()
    predicted = json.loads(printed(capsys, "predict", out, pile, "--json"))
    labels = {Path(each["path"]).name: each["label"] for each in predicted}
    rows = (line.split(",") for line in (out / "predictions.csv").read_text().splitlines()[1:])
    assert labels == {Path(row[0]).name: row[1] for row in rows if "labeled" not in row}


def saved_model(path: Path, out: Path) -> Path:
    """What `classify` leaves, of colored noise seen by an ONNX file."""
    encoder = middle_of(f"onnx:{path}")
    colors = np.repeat([[230, 20, 20], [20, 20, 230], [20, 230, 20]], 10, 0)
    noise = np.random.default_rng(0)  # whatever other tests draw
    given = colors[:, None, None] + noise.integers(-20, 20, (30, SIDE, SIDE, 3))
    features = encoder.encode(given.clip(0, 255))
    labels = np.where(np.arange(30) % 10 < 4, np.repeat([0, 1, 2], 10), -1)
    out.mkdir()
    PrototypeClassifier(reject=0.05).fit(features, labels).save(out / "classifier.safetensors")
    save_encoder(encoder, out)
    return out


MADE = {
    "with weights": None,
    "tokens": (TOKENS, "float[b,3,20,20] x", GIVES_TOKENS),
    "maps": ("y = Identity(x)", "float[b,3,20,20] x", "float[b,3,20,20] y"),
    "channels last": (MEANS_LAST, "float[b,20,20,3] x"),
    "half precision": (MEANS, "float16[b,3,20,20] x", "float16[b,n] y"),
    "axes as an attribute": ("y = ReduceMean<axes=[2, 3], keepdims=0>(x)", *USUAL, 11),
    "a newer opset": (MEANS, *USUAL, 21),
    "names as in the exported file": (
        "label = Identity(images) probabilities = GlobalAveragePool(label) y = Flatten(probabilities)",
        "float[b,3,20,20] images",
    ),
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_the_exported_file_holds_the_encoder_too(made, network, tmp_path):
    path = written(tmp_path / "m.onnx", *made) if made else network
    model = saved_model(path, tmp_path / "model")
    said = export(model, tmp_path / "a.onnx")
    assert "3 classes, takes uint8 images (20 x 20 x 3), " in said
    encoder = load_encoder(model)
    classifier = PrototypeClassifier.load(model / "classifier.safetensors")
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"))
    about = session.get_modelmeta().custom_metadata_map
    assert about["encoder"] == f"onnx:{path.name}"
    assert json.loads(about["resize"])["rule"] == "middle"
    for count in (1, 6):
        given = images(count)
        probabilities = session.run(["probabilities"], {"images": given})[0]
        expected = classifier.predict_proba(encoder.encode(given))
        assert np.allclose(probabilities, expected, atol=1e-3)


NOT_JOINED = {
    "takes 1 images at once": (MEANS, "float[1,3,20,20] x"),
    "in opset 10": ("y = ReduceMean<axes=[2, 3], keepdims=0>(x)", *USUAL, 10),
}


@pytest.mark.parametrize("line", NOT_JOINED)
def test_an_encoder_that_cannot_be_joined_gives_a_one_line_error(line, tmp_path):
    model = saved_model(written(tmp_path / "m.onnx", *NOT_JOINED[line]), tmp_path / "model")
    with pytest.raises(InputError, match=f"{line}.*: export the encoder again"):
        export(model, tmp_path / "all.onnx")
    assert not (tmp_path / "all.onnx").exists()


class TwoOutputs(nn.Module):
    """In place of a transformer: tokens, and a pooled output of another size."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 6, 32, 32)

    def forward(self, pixel_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = self.convolution(pixel_values).flatten(2).transpose(1, 2)
        return tokens, tokens.mean(1)[:, :5]


def test_the_export_of_the_document_is_an_encoder(tmp_path, monkeypatch):
    """Its weights cannot be downloaded here: a small network stands in."""
    text = DOCUMENT.read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    transformers = ModuleType("transformers")
    transformers.AutoModel = SimpleNamespace(from_pretrained=lambda _: TwoOutputs())
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    monkeypatch.chdir(tmp_path)
    with quiet():
        exec(compile(code, str(DOCUMENT), "exec"), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dino.onnx", "dino.onnx.data"]
    encoder = middle_of("onnx:dino.onnx")
    assert (encoder.shape, encoder.features) == ((224, 224, 3), 5)
