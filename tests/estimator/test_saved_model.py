"""A fitted classifier in a file: it predicts the same, and what is wrong with a file is named."""

import json

import numpy as np
import pytest

from semishot import PrototypeClassifier
from semishot.errors import InputError
from semishot.estimator.saved_model import FORMAT, read_model
from semishot.system.tensor_files import read_arrays, write_arrays
from support.optional_torch import module_or_skip

refine = module_or_skip("semishot.refine")

D = 40


def data(shot=2):
    """Labels of three classes, and a pile of members and strangers."""
    rng = np.random.default_rng(0)
    owner = np.concatenate([np.repeat([0, 1, 2], shot), rng.integers(0, 4, 40)])
    x = 3 * np.random.default_rng(9).normal(size=(4, D))[owner] + rng.normal(size=(len(owner), D))
    return x, np.where(np.arange(len(owner)) < 3 * shot, owner, -1)


@pytest.mark.parametrize("refiner", ["graph", "fitted_mask", "oslo", None])
@pytest.mark.parametrize("names", [["cat", "dog", "elk"], [7, 0, 30]])
@pytest.mark.parametrize("features", [D, 3])
def test_a_saved_classifier_predicts_the_same(refiner, names, features, tmp_path):
    x, y = data()
    x, labels = x[:, :features], np.array([*names, -1], object)[y]
    fitted = PrototypeClassifier(refiner, reject=0.05, steps=np.int64(2)).fit(x, labels)
    fitted.save(tmp_path / "mine.safetensors")
    loaded = PrototypeClassifier.load(tmp_path / "mine.safetensors")
    assert loaded.get_params() == fitted.get_params()
    assert list(loaded.predict(x)) == list(fitted.predict(x))
    for method in ("predict_proba", "distractor_score", "stranger_proba"):
        assert np.array_equal(getattr(loaded, method)(x), getattr(fitted, method)(x))
    for name in ("message_", "held_out_", "n_strangers_", "members_", "strangers_", "pile_helps_"):
        assert getattr(loaded, name) == getattr(fitted, name)
    answers = read_model(tmp_path / "mine.safetensors").predict(x)  # what commands use
    assert np.array_equal(answers.classes, fitted.predict_proba(x))
    loaded.fit(x, labels)


def test_names_of_features_are_saved(tmp_path):
    pd = pytest.importorskip("pandas")
    x, y = data()
    frame = pd.DataFrame(x, columns=[f"f{i}" for i in range(D)])
    PrototypeClassifier().fit(frame, y).save(tmp_path / "a")
    loaded = PrototypeClassifier.load(tmp_path / "a")
    assert list(loaded.feature_names_in_) == list(frame.columns)
    loaded.predict(frame)


def test_files_that_cannot_be_written_or_read_are_named(tmp_path):
    x, y = data()
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
    PrototypeClassifier().fit(x, y).save(tmp_path / "d")
    content = (tmp_path / "d").read_bytes()
    (tmp_path / "d").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match="its checksum differs"):
        PrototypeClassifier.load(tmp_path / "d")


WRONG_FIELDS = [
    ({"parameters": 3}, "parameters: expected `object`, got `int`"),
    ({"parameters": {"steps": "1"}}, "steps must be 'auto' or at least 1, not '1'"),
    ({"parameters": {"refiner": 3}}, "refiner must be a name, a module or None, not 3"),
    ({"parameters": {"speed": 3}}, "unexpected keyword argument 'speed'"),
    ({"classes": [[1], 2, 3]}, "classes[0]: expected `int | float | str`, got `array`"),
    ({"classes": [1, 2]}, "prototypes must be float64 (2, 10), not float64 (3, 10)"),
    ({"classes_dtype": "V8"}, "classes_dtype: expected `str` matching"),
    ({"normalization": "l2"}, "normalization must be one of centered, unit, none"),
    ({"length": -1}, "length: expected `float` > 0"),
    ({"length": float("nan")}, "length: expected `float`, got `str`"),
    ({"members": {"mean": "far"}}, "members.mean: expected `float`, got `str`"),
    (
        {"members": {"mean": 1, "spread": 1, "freedom": 1, "held_out": [2, 1]}},
        "members.held_out must be ascending",
    ),
    ({"strangers": [1, 1, 1]}, "strangers[2]: expected `float` < 1"),
    ({"graph": {"graph_weight": 0, "pull": 1, "share": 0}}, "graph.graph_weight: expected"),
    ({"width": None}, "center must be float64 (10,), not float64 (4,)"),
    ({"message": None}, "message: expected `str`, got `null`"),
    ({"feature_names": ["a", "b"]}, "feature_names must be none or one for each feature"),
    ({"speed": 3}, "unknown field speed"),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The arrays and the metadata of a classifier of three classes and four features."""
    path, rng = tmp_path_factory.mktemp("saved") / "a", np.random.default_rng(0)
    PrototypeClassifier().fit(rng.normal(size=(9, 4)), np.arange(9) % 3).save(path)
    arrays, metadata = read_arrays(path)
    return arrays, json.loads(metadata[FORMAT])


@pytest.mark.parametrize(("change", "line"), WRONG_FIELDS, ids=str)
def test_a_wrong_field_of_a_saved_classifier_is_named(saved, change, line, tmp_path):
    arrays, about = saved
    write_arrays(tmp_path / "a", arrays, {FORMAT: json.dumps({**about, **change})})
    with pytest.raises(InputError) as refused:
        PrototypeClassifier.load(tmp_path / "a")
    assert str(refused.value).startswith(f"{tmp_path / 'a'} was not written by PrototypeClassifier")
    assert line in str(refused.value)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"prototypes": None}, "its prototypes are missing"),
        ({"prototypes": np.full((3, 10), np.nan)}, "prototypes must be finite float32 or float64"),
        ({"prototypes": np.ones((3, 10), "f2")}, "prototypes must be finite float32 or float64"),
        ({"prototypes": np.ones(12)}, "prototypes must be float64 (3, 0), not float64 (12,)"),
        ({"pivots": np.ones((9, 5))}, "pivots must be float64 (9, 4), not float64 (9, 5)"),
        ({"rows": np.ones(0)}, "rows must be float64 (0, 10), not float64 (0,)"),
        ({"best": None}, "best is missing"),
        ({"passed": np.ones((9, 4), "f4")}, "passed must be float64 (9, 4), not float32 (9, 4)"),
    ],
    ids=str,
)
def test_a_wrong_array_of_a_saved_classifier_is_named(saved, change, line, tmp_path):
    arrays, about = saved
    kept = {name: array for name, array in {**arrays, **change}.items() if array is not None}
    write_arrays(tmp_path / "a", kept, {FORMAT: json.dumps(about)})
    with pytest.raises(InputError) as refused:
        PrototypeClassifier.load(tmp_path / "a")
    assert line in str(refused.value)
