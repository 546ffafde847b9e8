"""`--encoder onnx:FILE`: the features are what the file says of images, and wrong files are one line."""

import json
import re
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
pytest.importorskip("onnxscript", reason="the extra `onnx` is not installed")

import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from semishot import PrototypeClassifier
from semishot.commands.main import main
from semishot.errors import InputError
from semishot.sorter.encoders import onnx_files
from semishot.sorter.encoders.image_encoder import load_encoder, open_encoder, save_encoder
from semishot.sorter.encoders.onnx_options import OnnxOptions
from semishot.sorter.export import export, quiet
from semishot.sorter.predict import read_saved_model
from support.commands import printed, refusal
from support.own_images import folders

RNG = np.random.default_rng(0)
SIDE = 20
DOCUMENT = Path(__file__).parents[3] / "docs" / "encoders.md"


class SmallNetwork(nn.Module):
    """(B, 3, H, W) -> (B, 5)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 4, 3, stride=2), nn.Conv2d(4, 5, 3, stride=2)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(pixels).relu()).mean((2, 3))


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Path:
    """The small network as torch writes it, with a dynamic batch."""
    path = tmp_path_factory.mktemp("network") / "small.onnx"
    with quiet():
        program = torch.onnx.export(
            SmallNetwork().eval(),
            (torch.zeros(2, 3, SIDE, SIDE),),
            input_names=["pixel_values"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            verbose=False,
        )
    program.save(path, external_data=False)
    return path


def graph(
    path: Path,
    nodes: list,
    outputs: dict[str, list],
    shape=("b", 3, SIDE, SIDE),
    kind: int = TensorProto.FLOAT,
    out_kind: int = TensorProto.FLOAT,
    weights: dict[str, np.ndarray] | None = None,
    metadata: dict[str, str] | None = None,
) -> Path:
    """A graph by hand; its input is `x`."""
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(name, out_kind, s) for name, s in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    for key, value in (metadata or {}).items():
        model.metadata_props.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())
    return path


def means(path: Path, axes=(2, 3), shape=("b", 3, SIDE, SIDE), **more) -> Path:
    """Features are the means over pixels: (B, C)."""
    node = helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)
    return graph(path, [node], {"y": ["b", None]}, shape, weights={"axes": np.array(axes)}, **more)


def identity(path: Path, **more) -> Path:
    """The output is the input."""
    return graph(path, [helper.make_node("Identity", ["x"], ["y"])], **more)


def images(count: int = 3, side: int = SIDE, channels: int = 3) -> torch.Tensor:
    return torch.from_numpy(RNG.integers(0, 256, (count, side, side, channels), np.uint8))


def test_the_features_are_those_of_the_network(network):
    encoder = open_encoder(f"onnx:{network}")
    assert (encoder.name, encoder.features) == ("onnx:small.onnx", 5)
    assert (encoder.height, encoder.width, encoder.channels) == (SIDE, SIDE, 3)
    given = images(7)
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    scaled = torch.from_numpy((given.numpy() / 255 - mean) / std).permute(0, 3, 1, 2).float()
    with torch.no_grad():
        truth = SmallNetwork()(scaled)
    torch.testing.assert_close(encoder.module(given), truth, rtol=1e-4, atol=1e-5)
    assert "ImageNet's mean and std" in encoder.notes[0]
    half = open_encoder(f"onnx:{network}", OnnxOptions(encoder_mean=(0.5,), encoder_std=(0.25,)))
    with torch.no_grad():
        truth = SmallNetwork()((given.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25)
    torch.testing.assert_close(half.module(given), truth, rtol=1e-4, atol=1e-5)
    assert half.notes == ()
    assert half.identity != encoder.identity


@pytest.mark.parametrize(
    ("shape", "kind", "channels", "axes"),
    [
        (("b", 3, SIDE, SIDE), TensorProto.FLOAT, 3, (2, 3)),
        (("b", SIDE, SIDE, 3), TensorProto.FLOAT, 3, (1, 2)),
        (("b", 1, SIDE, SIDE), TensorProto.FLOAT, 1, (2, 3)),
        ((2, SIDE, SIDE, 1), TensorProto.FLOAT, 1, (1, 2)),
        ((1, 3, SIDE, SIDE), TensorProto.FLOAT, 3, (2, 3)),
        (("b", "num_channels", "height", "width"), TensorProto.FLOAT, 3, (2, 3)),
        (("b", "height", "width", "channels"), TensorProto.FLOAT, 3, (1, 2)),
        (("b", 3, SIDE, SIDE), TensorProto.FLOAT16, 3, (2, 3)),
        (("b", 3, SIDE, SIDE), TensorProto.DOUBLE, 3, (2, 3)),
    ],
)
def test_any_layout_type_and_batch_gives_the_same(shape, kind, channels, axes, tmp_path):
    path = means(tmp_path / "m.onnx", axes, shape, kind=kind, out_kind=kind)
    size = None if isinstance(shape[2], int) else SIDE
    options = OnnxOptions(size, encoder_mean=(0.0,), encoder_std=(1.0,))
    encoder = open_encoder(f"onnx:{path}", options)
    given = images(5, channels=channels)
    truth = given.float().mean((1, 2)) / 255
    tolerance = 2e-3 if kind == TensorProto.FLOAT16 else 1e-5
    torch.testing.assert_close(encoder.module(given), truth, rtol=tolerance, atol=tolerance)
    assert encoder.module(given).dtype == torch.float32


def test_uint8_pixels_are_given_as_they_are(tmp_path):
    cast = helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT)
    mean = helper.make_node("ReduceMean", ["f", "axes"], ["y"], keepdims=0)
    shape = ("b", SIDE, SIDE, 3)
    weights = {"axes": np.array([1, 2])}
    path = graph(
        tmp_path / "m.onnx",
        [cast, mean],
        {"y": ["b", 3]},
        shape,
        TensorProto.UINT8,
        weights=weights,
    )
    given = images(4)
    encoder = open_encoder(f"onnx:{path}")
    torch.testing.assert_close(encoder.module(given), given.float().mean((1, 2)))
    with pytest.raises(InputError, match="takes uint8 pixels: drop --encoder-mean and"):
        open_encoder(f"onnx:{path}", OnnxOptions(encoder_mean=(0.5,), encoder_std=(0.5,)))


def tokens(path: Path, more_outputs: bool = False, **more) -> Path:
    """(B, 3, H * W) as tokens of H * W features: the first token is the red channel."""
    nodes = [helper.make_node("Reshape", ["x", "to"], ["last_hidden_state"])]
    outputs = {"last_hidden_state": ["b", 3, SIDE * SIDE]}
    weights = {"to": np.array([0, 3, SIDE * SIDE])}
    if more_outputs:
        nodes.append(
            helper.make_node("ReduceMax", ["last_hidden_state", "axes"], ["pooler_output"])
        )
        nodes[-1].attribute.append(helper.make_attribute("keepdims", 0))
        weights["axes"] = np.array([1])
        outputs["pooler_output"] = ["b", SIDE * SIDE]
    return graph(path, nodes, outputs, weights=weights, **more)


PLAIN = {"encoder_mean": (0.0,), "encoder_std": (1 / 255,)}


def test_of_tokens_the_first_or_the_mean_and_of_maps_the_mean(tmp_path):
    given = images(2)
    flat = given.permute(0, 3, 1, 2).reshape(2, 3, -1).float()
    path = tokens(tmp_path / "t.onnx")
    close = {"rtol": 1e-4, "atol": 1e-3}
    first = open_encoder(f"onnx:{path}", OnnxOptions(**PLAIN))
    torch.testing.assert_close(first.module(given), flat[:, 0], **close)
    mean = open_encoder(f"onnx:{path}", OnnxOptions(**PLAIN, encoder_tokens="mean"))
    torch.testing.assert_close(mean.module(given), flat.mean(1), **close)
    assert mean.identity != first.identity
    for shape, name in ((("b", 3, SIDE, SIDE), "a"), (("b", SIDE, SIDE, 3), "b")):
        maps = identity(tmp_path / f"{name}.onnx", outputs={"y": list(shape)}, shape=shape)
        found = open_encoder(f"onnx:{maps}", OnnxOptions(**PLAIN)).module(given)
        torch.testing.assert_close(found, given.float().mean((1, 2)), **close)


def test_of_several_outputs_the_pooled_one_or_the_one_that_is_named(tmp_path):
    path = tokens(tmp_path / "t.onnx", more_outputs=True)
    given = images(2)
    flat = given.permute(0, 3, 1, 2).reshape(2, 3, -1).float()
    close = {"rtol": 1e-4, "atol": 1e-3}
    found = open_encoder(f"onnx:{path}", OnnxOptions(**PLAIN)).module(given)
    torch.testing.assert_close(found, flat.amax(1), **close)
    named = OnnxOptions(**PLAIN, encoder_output="last_hidden_state")
    torch.testing.assert_close(
        open_encoder(f"onnx:{path}", named).module(given), flat[:, 0], **close
    )
    with pytest.raises(InputError, match="has no output 'z', but last_hidden_state, pooler_output"):
        open_encoder(f"onnx:{path}", OnnxOptions(encoder_output="z"))
    nodes = [helper.make_node("Identity", ["x"], [name]) for name in ("p", "q")]
    both = graph(tmp_path / "b.onnx", nodes, {n: ["b", 3, SIDE, SIDE] for n in ("p", "q")})
    with pytest.raises(InputError, match="has 2 outputs: name the one .* --encoder-output p, q"):
        open_encoder(f"onnx:{both}")
    nodes.append(helper.make_node("ReduceMean", ["x", "axes"], ["r"], keepdims=0))
    outputs = {n: ["b", 3, SIDE, SIDE] for n in ("p", "q")} | {"r": ["b", 3]}
    flat_one = graph(tmp_path / "c.onnx", nodes, outputs, weights={"axes": np.array([2, 3])})
    assert open_encoder(f"onnx:{flat_one}").module.preparation.output == "r"


def test_the_file_may_say_how_images_are_prepared_and_flags_win(tmp_path):
    said = {"encoder_size": "12", "encoder_mean": "[0.1, 0.2, 0.3]", "encoder_std": "0.5"}
    said |= {"encoder_crop": "1.0", "encoder_output": "y", "encoder_tokens": "mean", "other": "x"}
    path = means(tmp_path / "m.onnx", shape=("b", 3, "h", "w"), metadata=said)
    found = open_encoder(f"onnx:{path}").module.preparation
    assert asdict(found) == {
        "height": 12,
        "width": 12,
        "channels": 3,
        "crop": 1.0,
        "mean": (0.1, 0.2, 0.3),
        "std": (0.5, 0.5, 0.5),
        "output": "y",
        "tokens": "mean",
    }
    flags = OnnxOptions(16, (0.0,), (1.0,), 0.5, None, "first")
    found = open_encoder(f"onnx:{path}", flags).module.preparation
    assert (found.height, found.mean, found.crop, found.tokens) == (16, (0.0,) * 3, 0.5, "first")


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("encoder_size", "0", "encoder_size must be a number of pixels, not 0"),
        ("encoder_size", '"x"', "encoder_size must be a number of pixels, not 'x'"),
        ("encoder_size", "5000", "the size must be 1 to 4096 pixels, not 5000 x 5000"),
        ("encoder_mean", "[1, 2]", "encoder_mean must be one number or three, not"),
        ("encoder_std", "[1, NaN, 2]", "encoder_std must be one number or three, not"),
        ("encoder_std", "0", "encoder_std must be positive, not"),
        ("encoder_mean", "0.5", "pass both --encoder-mean and --encoder-std, or neither"),
        ("encoder_crop", "1.5", "encoder_crop must be above 0 and at most 1, not 1.5"),
        ("encoder_output", "7", "encoder_output must be a name, not 7"),
        ("encoder_tokens", "last", "encoder_tokens must be first or mean, not 'last'"),
    ],
)
def test_metadata_that_are_wrong_are_one_line(key, value, line, tmp_path):
    said = {"encoder_size": "12", key: value}
    path = means(tmp_path / "m.onnx", shape=("b", 3, "h", "w"), metadata=said)
    with pytest.raises(InputError, match=line):
        open_encoder(f"onnx:{path}")


def two_inputs(path: Path) -> Path:
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["b", 3, 4, 4]) for n in "xz"]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 3, 4, 4])]
    made = helper.make_graph([helper.make_node("Add", ["x", "z"], ["y"])], "g", info, out)
    opsets = [helper.make_opsetid("", 18)]
    path.write_bytes(
        helper.make_model(made, opset_imports=opsets, ir_version=10).SerializeToString()
    )
    return path


def custom_operator(path: Path) -> Path:
    node = helper.make_node("Evil", ["x"], ["y"], domain="evil.lib")
    made = graph(path, [node], {"y": ["b", 3]})
    model = onnx.load(made)
    model.opset_import.append(helper.make_opsetid("evil.lib", 1))
    path.write_bytes(model.SerializeToString())
    return path


def not_utf8(path: Path) -> Path:
    node = helper.make_node("GlobalAveragePool", ["x"], ["zzzz"])
    path.write_bytes(
        graph(path, [node], {"zzzz": ["b", 3, 1, 1]}).read_bytes().replace(b"zzzz", b"\xfd" * 4)
    )
    return path


def not_finite(path: Path) -> Path:
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["m"], keepdims=0),
        helper.make_node("Div", ["m", "zero"], ["y"]),
    ]
    weights = {"axes": np.array([2, 3]), "zero": np.zeros(1, np.float32)}
    return graph(path, nodes, {"y": ["b", 3]}, weights=weights)


def counted(path: Path) -> Path:
    node = helper.make_node("Shape", ["x"], ["y"])
    return graph(path, [node], {"y": [4]}, out_kind=TensorProto.INT64)


def one_axis(path: Path) -> Path:
    node = helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)
    return graph(path, [node], {"y": ["b"]}, weights={"axes": np.array([1, 2, 3])})


def batch_gone(path: Path) -> Path:
    node = helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)
    return graph(path, [node], {"y": [3, SIDE]}, weights={"axes": np.array([0, 3])})


def wrong_inside(path: Path) -> Path:
    """It asks for one image, but says that any number will do."""
    node = helper.make_node("Reshape", ["x", "to"], ["y"])
    return graph(
        path, [node], {"y": ["b", None]}, weights={"to": np.array([1, 3 * SIDE * SIDE + 1])}
    )


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda p: p, "no file "),
        (lambda p: p.write_bytes(b"\x89PNG\r\n\x1a\n junk") and p, "is not an ONNX file ("),
        (lambda p: p.write_bytes(b"") or p, "is not an ONNX file (it holds no graph)"),
        (two_inputs, "has 2 inputs (x, z), not one: export the part that takes images"),
        (
            lambda p: identity(p, outputs={"y": ["b", 3]}, shape=("b", 3)),
            "its input 'x' has 2 axes, not 4",
        ),
        (
            lambda p: means(p, kind=TensorProto.INT32, out_kind=TensorProto.INT32),
            "its input 'x' is tensor(int32), not float or uint8",
        ),
        (
            lambda p: means(p, shape=("b", 5, SIDE, SIDE)),
            "without an axis of 1 or 3 channels",
        ),
        (
            lambda p: means(p, shape=("b", 3, "h", "w")),
            "takes images of any size: pass --encoder-size PIXELS",
        ),
        (lambda p: means(p, shape=(5000, 3, 4, 4)), "takes 5,000 images at once, not 1 to 1024"),
        (custom_operator, "onnxruntime cannot open"),
        (not_utf8, "m.onnx ('utf-8' codec can't decode"),
        (not_finite, "its output 'y' is not finite for an image of noise; check --encoder-mean"),
        (counted, "its output 'y' is tensor(int64), not float"),
        (one_axis, "its output 'y' has the shape (2,) for 2 images, not (images, features)"),
        (batch_gone, "its output 'y' has the shape (3, 20) for 2 images, not (images, features)"),
        (wrong_inside, "cannot be run on images (2, 3, 20, 20) ("),
    ],
)
def test_a_file_that_will_not_do_is_one_line(make, line, tmp_path, capsys):
    labeled, pile = folders(tmp_path, shots=1, pile=1, strangers=0)
    path = make(tmp_path / "m.onnx")
    given = ["--labeled", labeled, "--unlabeled", pile, "--out", tmp_path / "out"]
    assert line in refusal(capsys, "classify", *given, "--encoder", f"onnx:{path}")
    assert not (tmp_path / "out").exists()


def test_flags_that_contradict_the_file_or_another_encoder_are_one_line(tmp_path, capsys):
    labeled, pile = folders(tmp_path, shots=1, pile=1, strangers=0)
    given = ["classify", "--labeled", labeled, "--unlabeled", pile, "--out", tmp_path / "out"]
    path = means(tmp_path / "m.onnx")
    said = refusal(capsys, *given, "--encoder", f"onnx:{path}", "--encoder-size", 30)
    assert "takes images of 20 pixels, not 30: drop --encoder-size" in said
    said = refusal(capsys, *given, "--encoder", "omniglot", "--encoder-size", 30)
    assert "--encoder-size, -mean, -std, -crop, -output and -tokens are for onnx:FILE" in said


def test_without_the_extra_it_is_one_line(tmp_path, monkeypatch):
    path = means(tmp_path / "m.onnx")
    for name in ("onnxruntime", "onnx"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(
            InputError, match=f"an ONNX encoder needs {name}: pip install 'semishot.onnx"
        ):
            open_encoder(f"onnx:{path}")


# Weights in other files


@pytest.fixture
def outside(network, tmp_path) -> Path:
    """The small network with its weights in a file beside it."""
    folder = tmp_path / "outside"
    folder.mkdir()
    model = onnx.load(str(network))
    onnx.save_model(
        model,
        str(folder / "small.onnx"),
        save_as_external_data=True,
        location="small.onnx.data",
        size_threshold=0,
    )
    return folder / "small.onnx"


def test_weights_beside_the_file_are_taken_in(network, outside, tmp_path):
    encoder, given = open_encoder(f"onnx:{outside}"), images(3)
    expected = open_encoder(f"onnx:{network}").module(given)
    torch.testing.assert_close(encoder.module(given), expected)
    (tmp_path / "saved").mkdir()
    save_encoder(encoder, tmp_path / "saved")
    shutil.rmtree(outside.parent)
    assert torch.equal(load_encoder(tmp_path / "saved").module(given), encoder.module(given))


def relocated(path: Path, **entries: str) -> None:
    model = onnx.load(str(path), load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = entries.get(entry.key, entry.value)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(
    "place", ["../secret", "/etc/hostname", "..\\secret", "C:secret", "", ".."]
)
def test_weights_in_another_folder_are_not_read(place, outside):
    (outside.parent.parent / "secret").write_bytes(bytes(10_000))
    relocated(outside, location=place)
    with pytest.raises(InputError, match="which is not a file of the same folder; save it as one"):
        open_encoder(f"onnx:{outside}")


def test_weights_that_are_missing_linked_or_too_short_are_one_line(outside, monkeypatch):
    data = outside.with_name("small.onnx.data")
    monkeypatch.setattr(onnx_files, "MOST_BYTES", outside.stat().st_size + 10)
    with pytest.raises(InputError, match="and its weights have more than .* bytes"):
        open_encoder(f"onnx:{outside}")
    monkeypatch.undo()
    content = data.read_bytes()
    data.write_bytes(content[:50])
    with pytest.raises(InputError, match="'small.onnx.data' does not hold its weights .50 bytes"):
        open_encoder(f"onnx:{outside}")
    data.unlink()
    with pytest.raises(
        InputError, match="keeps its weights in 'small.onnx.data', which is missing"
    ):
        open_encoder(f"onnx:{outside}")
    data.with_name("elsewhere").write_bytes(content)
    data.symlink_to("elsewhere")
    with pytest.raises(InputError, match="is not a file of the same folder"):
        open_encoder(f"onnx:{outside}")
    data.unlink()
    data.write_bytes(content)
    relocated(outside, length="x")
    with pytest.raises(InputError, match="does not hold its weights .invalid literal"):
        open_encoder(f"onnx:{outside}")


# Saved with the model


def test_a_saved_encoder_is_the_same_one_and_needs_no_other_file(network, tmp_path):
    own = Path(shutil.copy(network, tmp_path / "mine.onnx"))
    encoder = open_encoder(f"onnx:{own}", OnnxOptions(encoder_crop=0.5))
    folder = tmp_path / "saved"
    folder.mkdir()
    save_encoder(encoder, folder)
    own.unlink()
    assert sorted(path.name for path in folder.iterdir()) == ["encoder.json", "encoder.onnx"]
    assert str(tmp_path) not in (folder / "encoder.json").read_text()
    loaded, given = load_encoder(folder), images(4)
    assert loaded.identity == encoder.identity
    assert torch.equal(loaded.module(given), encoder.module(given))
    opened = Image.fromarray(RNG.integers(0, 256, (50, 60, 3), np.uint8))
    assert np.array_equal(loaded.prepare(opened), encoder.prepare(opened))


def changed(folder: Path, **fields: object) -> None:
    said = json.loads((folder / "encoder.json").read_text())
    said["onnx"] |= fields
    (folder / "encoder.json").write_text(json.dumps(said))


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"height": 0}, "encoder.json: onnx: the size must be 1 to 4096 pixels, not 0 x 20"),
        ({"channels": 2}, "images have 1 or 3 channels, not 2"),
        ({"crop": 0}, "the crop must be above 0 and at most 1, not 0"),
        ({"mean": [1]}, "the mean must be 3 numbers, not"),
        ({"std": [1, 1, -1]}, "the std must be positive, not"),
        ({"mean": [], "std": []}, "which contradicts its mean and std"),
        ({"output": "z"}, "has no output 'z'"),
        ({"tokens": "all"}, "tokens must be one of first, mean, not 'all'"),
        ({"crop": 0.25}, "is not the one of"),
        ({"height": 21}, "cannot be run on images"),
    ],
)
def test_a_changed_description_is_refused(fields, line, network, tmp_path):
    save_encoder(open_encoder(f"onnx:{network}"), tmp_path)
    changed(tmp_path, **fields)
    with pytest.raises(InputError, match=line):
        load_encoder(tmp_path)


def test_a_saved_graph_that_is_missing_changed_or_refers_to_other_files_is_refused(
    network, outside, tmp_path
):
    folder = tmp_path / "saved"
    folder.mkdir()
    save_encoder(open_encoder(f"onnx:{network}"), folder)
    means(folder / "encoder.onnx", shape=("b", 3, SIDE, SIDE))
    changed(folder, output="y")
    with pytest.raises(InputError, match="is not the one of"):
        load_encoder(folder)
    shutil.copy(outside, folder / "encoder.onnx")
    shutil.copy(outside.with_name("small.onnx.data"), folder)
    with pytest.raises(
        InputError, match="encoder.onnx refers to other files: run `semishot classify`"
    ):
        load_encoder(folder)
    (folder / "encoder.onnx").unlink()
    with pytest.raises(InputError, match=r"no file .*encoder\.onnx"):
        load_encoder(folder)
    (folder / "encoder.json").write_text('{"format": 1, "encoder": "onnx:x"}')
    with pytest.raises(InputError, match="onnx is missing; run `semishot classify` again"):
        load_encoder(folder)


def test_classify_then_predict_from_the_saved_model_alone(network, tmp_path, capsys):
    labeled, pile = folders(tmp_path, shots=3, pile=4, strangers=2)
    own, out = Path(shutil.copy(network, tmp_path / "mine.onnx")), tmp_path / "out"
    given = ["--labeled", labeled, "--unlabeled", pile, "--out", out, "--encoder", f"onnx:{own}"]
    said = printed(capsys, "classify", *given, "--device", "cpu")
    assert f"seen by the encoder onnx:mine.onnx (onnxruntime {onnxruntime.__version__})." in said
    assert "pixels were scaled by ImageNet's mean and std" in said
    scaled = ["--encoder-mean", 0.5, "--encoder-std", 0.5, 0.5, 0.5, "--encoder-crop", 1]
    said = printed(capsys, "classify", *given, *scaled, "--device", "cpu")  # replaces its model
    assert "pixels were scaled" not in said
    assert len(list((out / "embeddings").iterdir())) == 2  # other options, other features
    own.unlink()
    found = printed(capsys, "predict", out, pile, "--json")
    labels = {Path(one["path"]).name: one["label"] for one in json.loads(found)}
    held = {
        Path(line.split(",")[0]).name: line.split(",")[1]
        for line in (out / "predictions.csv").read_text().splitlines()[1:]
        if ",labeled," not in line
    }
    assert labels == held
    main(["classify", *map(str, given[:-1]), f"onnx:{out / 'model' / 'encoder.onnx'}"])


# Exported


def saved_model(path: Path, out: Path, options: OnnxOptions | None = None) -> Path:
    """What `classify` leaves, of colored noise seen by an ONNX file."""
    encoder = open_encoder(f"onnx:{path}", options)
    colors = np.repeat([[230, 20, 20], [20, 20, 230], [20, 230, 20]], 10, 0)
    given = colors[:, None, None] + RNG.integers(-20, 20, (30, SIDE, SIDE, 3))
    features = encoder.module(torch.from_numpy(given.clip(0, 255).astype(np.uint8))).numpy()
    labels = np.where(np.arange(30) % 10 < 4, np.repeat([0, 1, 2], 10), -1)
    out.mkdir()
    PrototypeClassifier(reject=0.05).fit(features, labels).save(out / "classifier.safetensors")
    save_encoder(encoder, out)
    return out


def last(path: Path) -> Path:
    return means(path, (1, 2), ("b", SIDE, SIDE, 3))


def maps(path: Path) -> Path:
    return identity(path, outputs={"y": ["b", 3, SIDE, SIDE]})


def old_operators(path: Path) -> Path:
    """In opset 11 the axes were an attribute."""
    node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[2, 3], keepdims=0)
    model = onnx.load(graph(path, [node], {"y": ["b", 3]}))
    model.opset_import[0].version, model.ir_version = 11, 6
    path.write_bytes(model.SerializeToString())
    return path


def new_operators(path: Path) -> Path:
    model = onnx.load(means(path))
    model.opset_import[0].version = 21
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    "make",
    [
        None,
        *(
            pytest.param(m, marks=pytest.mark.slow)
            for m in (tokens, maps, last, old_operators, new_operators)
        ),
    ],
    ids=lambda m: m and m.__name__,
)
def test_the_exported_file_holds_the_encoder_too(make, network, tmp_path):
    path = make(tmp_path / "m.onnx") if make else network
    model = saved_model(path, tmp_path / "model")
    said = str(export(model, tmp_path / "all.onnx"))
    assert "3 classes, takes uint8 images (20 x 20 x 3), " in said
    classifier, encoder = read_saved_model(model)
    session = onnxruntime.InferenceSession(str(tmp_path / "all.onnx"))
    about = session.get_modelmeta().custom_metadata_map
    assert about["encoder"] == f"onnx:{path.name}"
    assert json.loads(about["resize"])["rule"] == "middle"
    for count in (1, 6):
        given = images(count)
        probabilities = session.run(["probabilities"], {"images": given.numpy()})[0]
        expected = classifier.predict(encoder.module(given).numpy()).classes
        assert np.allclose(probabilities, expected, atol=1e-3)


@pytest.mark.slow
def test_an_encoder_that_cannot_be_joined_is_one_line(tmp_path, monkeypatch):
    one = saved_model(means(tmp_path / "one.onnx", shape=(1, 3, SIDE, SIDE)), tmp_path / "one")
    with pytest.raises(InputError, match="takes 1 image.s. at once, .* and a dynamic batch"):
        export(one, tmp_path / "all.onnx")
    two = saved_model(old_operators(tmp_path / "two.onnx"), tmp_path / "two")

    def convert_version(model, target):
        raise RuntimeError("No Adapter\nfor it")

    monkeypatch.setattr("onnx.version_converter.convert_version", convert_version)
    with pytest.raises(
        InputError, match="cannot be joined .* .No Adapter for it.: export the encoder"
    ):
        export(two, tmp_path / "all.onnx")
    assert not (tmp_path / "all.onnx").exists()


# The document


class TwoOutputs(nn.Module):
    """In place of a transformer: tokens, and a pooled output of another size."""

    def __init__(self, pooled_first: bool) -> None:
        super().__init__()
        self.pooled_first, self.convolution = pooled_first, nn.Conv2d(3, 6, 32, 32)

    def forward(self, pixel_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = self.convolution(pixel_values).flatten(2).transpose(1, 2)
        outputs = tokens, tokens.mean(1)[:, :5]
        return outputs[::-1] if self.pooled_first else outputs


@pytest.mark.parametrize("name", ["dino", "clip"])
def test_the_exports_of_the_document_are_encoders(name, tmp_path, monkeypatch):
    """Their weights cannot be downloaded here: a small network stands in for each."""
    text = DOCUMENT.read_text(encoding="utf-8")
    (code,) = (c for c in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S) if name in c)
    transformers = ModuleType("transformers")
    for kind in ("AutoModel", "CLIPVisionModelWithProjection"):
        stand_in = SimpleNamespace(from_pretrained=lambda _: TwoOutputs(name == "clip"))
        setattr(transformers, kind, stand_in)
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    monkeypatch.chdir(tmp_path)
    with quiet():
        exec(compile(code, str(DOCUMENT), "exec"), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.onnx", f"{name}.onnx.data"]
    encoder = open_encoder(f"onnx:{name}.onnx")
    assert (encoder.height, encoder.width, encoder.features) == (224, 224, 5)
