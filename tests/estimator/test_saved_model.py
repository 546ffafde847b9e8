"""A fitted classifier in a file: it predicts the same, and what is wrong with a file is named."""

import copy
import json

import numpy as np
import pytest

from semishot import PrototypeClassifier
from semishot.errors import InputError
from semishot.estimator.fitted_model import FORMAT, RULE, read_model
from semishot.estimator.rule import rule_digest
from semishot.system.tensor_files import read_arrays, write_arrays
from support.optional_torch import module_or_skip
from support.piles import pile

refine = module_or_skip("semishot.refine")

D = 40


@pytest.mark.parametrize("refiner", ["learned", "fitted_mask", "oslo", None])
@pytest.mark.parametrize("names", [["cat", "dog", "elk"], [7, 0, 30]])
@pytest.mark.parametrize("features", [D, 3])
def test_a_saved_classifier_predicts_the_same(refiner, names, features, tmp_path):
    x, y, _ = pile(shot=2)
    x, labels = x[:, :features], np.array([*names, -1], object)[y]
    fitted = PrototypeClassifier(refiner, reject=0.05, steps=np.int64(2)).fit(x, labels)
    fitted.save(tmp_path / "mine.safetensors")
    loaded = PrototypeClassifier.load(tmp_path / "mine.safetensors")
    assert loaded.get_params() == fitted.get_params()
    assert list(loaded.predict(x)) == list(fitted.predict(x))
    for method in ("predict_proba", "score_samples", "stranger_proba"):
        assert np.array_equal(getattr(loaded, method)(x), getattr(fitted, method)(x))
    for name in ("message_", "held_out_", "n_strangers_", "cutoff_"):
        assert getattr(loaded, name) == getattr(fitted, name)
    answers = read_model(tmp_path / "mine.safetensors").predict(x)  # what commands use
    assert np.array_equal(answers.classes, fitted.predict_proba(x))
    loaded.fit(x, labels)


def test_names_of_features_are_saved(tmp_path):
    pd = pytest.importorskip("pandas")
    x, y, _ = pile(shot=2)
    frame = pd.DataFrame(x, columns=[f"f{i}" for i in range(D)])
    PrototypeClassifier().fit(frame, y).save(tmp_path / "a")
    loaded = PrototypeClassifier.load(tmp_path / "a")
    assert list(loaded.feature_names_in_) == list(frame.columns)
    loaded.predict(frame)


def test_files_that_cannot_be_written_or_read_are_named(tmp_path):
    x, y, _ = pile(shot=2)
    with pytest.raises(InputError, match="a refiner is saved by its name"):
        PrototypeClassifier(refine.build("soft_kmeans")).fit(x, y).save(tmp_path / "a")
    with pytest.raises(InputError, match="no file"):
        PrototypeClassifier.load(tmp_path / "a")
    (tmp_path / "b").write_bytes(b"not this")
    with pytest.raises(InputError, match="b .*damaged"):
        PrototypeClassifier.load(tmp_path / "b")
    write_arrays(tmp_path / "c", {"prototypes": np.zeros((2, 2))}, {})
    with pytest.raises(InputError, match="was not written by PrototypeClassifier.save"):
        PrototypeClassifier.load(tmp_path / "c")
    write_arrays(tmp_path / "c", {}, {FORMAT: "{}", RULE: "of other weights"})
    with pytest.raises(
        InputError, match="c was saved by another version of semishot: fit and save"
    ):
        PrototypeClassifier.load(tmp_path / "c")
    PrototypeClassifier().fit(x, y).save(tmp_path / "d")
    content = (tmp_path / "d").read_bytes()
    (tmp_path / "d").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match="its checksum differs"):
        PrototypeClassifier.load(tmp_path / "d")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The arrays and the metadata of a classifier of three classes and four features."""
    path, rng = tmp_path_factory.mktemp("saved") / "a", np.random.default_rng(0)
    PrototypeClassifier().fit(rng.normal(size=(9, 4)), np.arange(9) % 3).save(path)
    arrays, metadata = read_arrays(path)
    return arrays, json.loads(metadata[FORMAT])


MODEL = ("learned", "model")
SUMS = (*MODEL, "reference", "sums")


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        (("parameters",), 3, "Expected `object`, got `int` - at `$.parameters`"),
        (("classes",), ["<i8", 1, 2], "expected 3 classes, not 2"),
        (("parameters", "reject"), 2, "reject must be None, 'auto' or between 0 and 1, not 2"),
        ((*MODEL, "type"), "Other", "Invalid value 'Other'"),
        ((*MODEL, "space", "width"), float("nan"), "Expected `float`, got `str`"),
        (SUMS, "array 99", "'array 99'"),
        (SUMS, np.full((4, 3, 4), np.nan), "expected finite float32 or float"),
        (SUMS, np.ones((4, 3, 7)), "mismatch"),
    ],
    ids=str,
)
def test_a_wrong_field_of_a_saved_classifier_is_named(saved, field, value, line, tmp_path):
    arrays, about = saved
    if isinstance(value, np.ndarray):
        arrays, value = {**arrays, "other": value}, "other"
    about = inner = copy.deepcopy(about)
    for key in field[:-1]:
        inner = inner[key]
    inner[field[-1]] = value
    write_arrays(tmp_path / "a", arrays, {FORMAT: json.dumps(about), RULE: rule_digest()})
    with pytest.raises(InputError) as refused:
        PrototypeClassifier.load(tmp_path / "a")
    assert str(refused.value).startswith(f"{tmp_path / 'a'} was not written by PrototypeClassifier")
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)
