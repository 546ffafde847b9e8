"""PrototypeClassifier: scikit-learn's contract, the promises of docs/estimator.md, and every message."""

import io
import json
import pickle
import re
import subprocess
import sys

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone

from semishot import PrototypeClassifier, refine
from semishot.errors import InputError
from semishot.estimator import blocks, by_prototypes, held_out, next_labels
from semishot.system.tensor_files import read_tensors, write_tensors

N, D = 3, 40


def data(shot=2, members=10, strangers=15, seed=0, noise=1.0):
    """Labeled first, then members class by class, then a cluster that is none of the classes."""
    rng = np.random.default_rng(seed)
    centers = 3 * np.random.default_rng(9).normal(size=(N + 1, D))
    owner = np.concatenate(
        [np.repeat(np.arange(N), shot), np.repeat(np.arange(N), members), np.full(strangers, N)]
    )
    x = centers[owner] + noise * rng.normal(size=(len(owner), D))
    y = np.where(np.arange(len(owner)) < N * shot, owner, -1)
    return x, y, np.where(owner == N, -1, owner)


def loose(**options):
    """Noise as large as the classes are apart: nothing is certain."""
    return data(noise=6.0, **options)


def same(one, other, x):
    return np.allclose(one.predict_proba(x), other.predict_proba(x), atol=1e-6)


# The contract


def test_import_semishot_loads_neither_torch_nor_scikit_learn():
    code = "import sys, semishot; sys.exit(bool({'torch', 'sklearn'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)
    import semishot

    with pytest.raises(AttributeError, match="no attribute 'Prototypes'"):
        _ = semishot.Prototypes
    assert semishot.next_to_label is next_labels.next_to_label


def test_a_clone_has_a_module_of_its_own_that_does_the_same():
    x, y, _ = data()
    given = PrototypeClassifier(refine.build("soft_kmeans"))
    copy = clone(given)
    assert copy.refiner is not given.refiner
    assert same(copy.fit(x, y), given.fit(x, y), x)


def test_pickle_and_joblib_keep_what_was_learned():
    x, y, _ = data()
    fitted = PrototypeClassifier(reject=0.05).fit(x, y)
    assert same(pickle.loads(pickle.dumps(fitted)), fitted, x)
    file = io.BytesIO()
    joblib.dump(fitted, file)
    file.seek(0)
    assert (joblib.load(file).predict(x) == fitted.predict(x)).all()


# Kinds of features and labels


def test_tensors_arrays_and_frames_give_the_same():
    x, y, _ = data()
    fitted = PrototypeClassifier().fit(x, y)
    tensor = torch.from_numpy(x).requires_grad_()
    assert same(PrototypeClassifier().fit(tensor, torch.from_numpy(y)), fitted, x)
    half = torch.from_numpy(x).to(torch.bfloat16)
    assert (PrototypeClassifier().fit(half, y).predict(half) == fitted.predict(x)).all()
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(x, columns=[f"f{i}" for i in range(D)])
    named = PrototypeClassifier().fit(frame, pd.Series(y))
    assert np.allclose(named.predict_proba(frame), fitted.predict_proba(x))
    assert named.score(frame, pd.Series(y)) == 1
    assert list(named.feature_names_in_) == list(frame.columns)


@pytest.mark.parametrize("names", [[7, 0, 30], [1.0, 0.0, 3.0]])
def test_classes_may_be_any_whole_numbers(names):
    x, y, _ = data()
    labels = np.array([*names, -1])[y]
    plain = PrototypeClassifier(reject=0.05).fit(x, y)
    fitted = PrototypeClassifier(reject=0.05).fit(x, labels)
    assert list(fitted.classes_) == sorted(names)
    expected = np.array([*names, -1])[plain.predict(x)]
    assert -1 in expected
    assert list(fitted.predict(x)) == list(fitted.transduction_) == list(expected)
    assert fitted.predict(x).dtype == labels.dtype


def test_strings_without_unlabeled_rows_are_classes_too():
    x, _, truth = data(members=0, strangers=0)
    names = np.array(["a", "b", "c"])[truth]
    fitted = PrototypeClassifier(reject=0.05).fit(x, names)
    assert fitted.score(x, names) > 0.5
    assert PrototypeClassifier().fit(x, names).predict(x).dtype.kind == "U"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_precision_of_the_features_is_kept(dtype):
    x, y, _ = data()
    fitted = PrototypeClassifier().fit(x.astype(dtype), y)
    assert fitted.prototypes_.dtype == dtype
    assert fitted.predict_proba(x.astype(dtype)).dtype == dtype


# Mathematics


@pytest.mark.parametrize("normalize", ["none", "unit", "centered"])
def test_without_a_pile_it_is_the_nearest_prototype(normalize):
    x, y, _ = loose(members=0, strangers=0, shot=3)
    fitted = PrototypeClassifier(None, normalize=normalize).fit(x, y)
    queries = loose(seed=1)[0]
    center = np.mean([row / np.linalg.norm(row) for row in x], axis=0)

    def moved(x):
        if normalize == "centered":
            x = x / np.linalg.norm(x) - center
        return x if normalize == "none" else x / np.linalg.norm(x)

    prototypes = []
    for c in range(N):
        p = np.mean([moved(x_) for x_, label in zip(x, y, strict=True) if label == c], axis=0)
        prototypes.append(p if normalize == "none" else p / np.linalg.norm(p))
    for row, query in zip(fitted.predict_proba(queries), queries, strict=True):
        d = np.array([((moved(query) - p) ** 2).sum() for p in prototypes])
        scores = np.exp(-(d - d.min()) / fitted.temperature_)
        assert np.allclose(row, scores / scores.sum())
    assert (fitted.predict(queries) == fitted.predict_proba(queries).argmax(1)).all()


def test_a_trained_refiner_at_temperature_1_is_the_episode_of_the_paper():
    x, y, _ = loose()
    refiner = refine.build("masked_soft_kmeans").double()
    fitted = PrototypeClassifier(refiner, steps=2, normalize="none", temperature=1.0)
    labeled = y >= 0
    support, unlabeled = torch.from_numpy(x[labeled] / 9), torch.from_numpy(x[~labeled] / 9)
    one_hot = torch.eye(N, dtype=torch.float64)[y[labeled]]
    with torch.no_grad():
        p = refine.refined_prototypes(refiner, support, one_hot, unlabeled, 2)
    fitted.fit(x / 9, y)
    assert fitted.pile_helps_
    assert np.allclose(fitted.prototypes_, p)
    single = PrototypeClassifier(refiner.float(), normalize="none", temperature=1.0)
    assert single.fit(x / 9, y).prototypes_.dtype == np.float64  # whatever the refiner's


@pytest.mark.parametrize("refiner", [None, "graph", "soft_kmeans", "fitted_mask"])
def test_scaling_all_features_changes_nothing(refiner):
    x, y, _ = loose()
    for normalize in ("none", "unit", "centered", "auto"):
        one = PrototypeClassifier(refiner, normalize=normalize).fit(x, y)
        other = PrototypeClassifier(refiner, normalize=normalize).fit(1000 * x, y)
        assert np.allclose(one.predict_proba(x), other.predict_proba(1000 * x))
        assert np.allclose(one.distractor_score(x), other.distractor_score(1000 * x))


@pytest.mark.parametrize("refiner", ["graph", "soft_kmeans", "fitted_mask"])
def test_the_order_of_the_pile_is_irrelevant(refiner):
    x, y, _ = loose()
    order = np.random.default_rng(3).permutation(len(y))
    order = np.concatenate(
        [order[y[order] >= 0][np.argsort(order[y[order] >= 0])], order[y[order] < 0]]
    )
    one = PrototypeClassifier(refiner).fit(x, y)
    assert same(PrototypeClassifier(refiner).fit(x[order], y[order]), one, x)


def test_relabeling_permutes_the_probabilities():
    x, y, _ = loose()
    other = np.where(y >= 0, (y + 1) % N, -1)
    one, two = PrototypeClassifier().fit(x, y), PrototypeClassifier().fit(x, other)
    assert np.allclose(one.predict_proba(x), two.predict_proba(x)[:, [1, 2, 0]])


def test_blocks_change_nothing(monkeypatch):
    x, y, _ = loose()
    one = PrototypeClassifier(reject=0.05).fit(x, y)
    monkeypatch.setattr(blocks, "BLOCK", 4 * D)
    assert same(PrototypeClassifier(reject=0.05).fit(x, y), one, x)
    assert (one.predict(x) == one.transduction_)[y == -1].all()


@pytest.mark.parametrize("refiner", ["graph", "fitted_mask"])
def test_a_memory_mapped_pile_larger_than_the_trial(refiner, tmp_path, monkeypatch):
    monkeypatch.setattr(by_prototypes, "TRIAL", 20)
    x, y, truth = data(members=40, strangers=40)
    np.save(tmp_path / "pile.npy", x.astype(np.float32))
    mapped = np.load(tmp_path / "pile.npy", mmap_mode="r")
    fitted = PrototypeClassifier(refiner).fit(mapped, y)
    members = truth >= 0
    assert (fitted.predict(mapped)[members] == truth[members]).all()


# Small and uneven


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 5, 30), (2, 1, 1), (1, 1), (4, 1), (3,), (1,)])
def test_any_number_of_examples_in_any_number_of_classes(sizes):
    x, y, truth = data(shot=30)
    keep = np.concatenate(
        [np.flatnonzero(y == c)[:n] for c, n in enumerate(sizes)] + [np.flatnonzero(y == -1)]
    )
    fitted = PrototypeClassifier(reject=0.05).fit(x[keep], y[keep])
    known = (truth >= 0) & (truth < len(sizes))
    right = fitted.set_params(reject=None).predict(x[known]) == truth[known]
    assert right.mean() > 0.95
    assert fitted.message_


@pytest.mark.parametrize("unlabeled", [0, 1, 2, 3])
def test_a_tiny_pile_is_fine(unlabeled):
    x, y, _ = data(shot=1)
    count = N + unlabeled
    fitted = PrototypeClassifier().fit(x[:count], y[:count])
    assert np.isfinite(fitted.predict_proba(x)).all()


def test_a_class_with_few_examples_is_not_farther_than_one_with_many():
    """Directions: a prototype's length does not depend on how many examples it is made of."""
    rng = np.random.default_rng(0)
    centers = np.random.default_rng(1).normal(size=(2, 500))
    x = np.concatenate([centers[[0]], centers[[1]].repeat(30, 0)]) + 3 * rng.normal(size=(31, 500))
    y = np.array([0] + [1] * 30)
    queries = centers.repeat(200, 0) + 3 * rng.normal(size=(400, 500))
    guessed = PrototypeClassifier(None, normalize="unit").fit(x, y).predict(queries)
    raw = PrototypeClassifier(None, normalize="none").fit(x, y).predict(queries)
    assert abs(guessed.mean() - 0.5) < abs(raw.mean() - 0.5)
    assert 0.25 < guessed.mean() < 0.75


def test_identical_examples_are_fine():
    x, y = np.ones((9, D)), np.array([0, 0, 1, 1, -1, -1, -1, -1, -1])
    assert np.allclose(PrototypeClassifier().fit(x, y).predict_proba(x), 0.5)


# The verdicts


@pytest.mark.parametrize("refiner", ["graph", "fitted_mask"])
def test_the_pile_helps_where_labels_are_few(refiner):
    gains = []
    for seed in range(10):
        x, y, _ = data(shot=1, members=30, strangers=30, seed=seed, noise=7.0)
        queries, _, truth = data(shot=0, members=50, strangers=0, seed=100 + seed, noise=7.0)
        right = [
            (PrototypeClassifier(r).fit(x, y).predict(queries) == truth).mean()
            for r in (None, refiner)
        ]
        gains.append(right[1] - right[0])
    assert np.mean(gains) > 0.03


def test_what_was_held_out_is_told():
    """The count and the share that the message names; a probability that is one."""
    x, y, _ = data(shot=4, members=20, strangers=20, noise=5.0)
    fitted = PrototypeClassifier().fit(x, y)
    right, count = map(int, re.match(r"(\d+) of (\d+) held-out", fitted.message_).groups())
    assert fitted.pile_helps_
    assert fitted.held_out_.examples == count
    assert fitted.held_out_.accuracy == pytest.approx(right / count)
    assert 1 / len(fitted.classes_) < fitted.held_out_.probability < 1
    one, labels, _ = data(shot=1, members=20, strangers=20)
    assert PrototypeClassifier().fit(one, labels).held_out_ is None


def test_a_pile_that_does_not_help_is_left_out_and_said_so():
    x, y, _ = data(shot=5, members=0, strangers=0, noise=3.0)
    lies = x[:5].mean(0) + 2 * x[5:10].mean(0) + np.random.default_rng(0).normal(size=(400, D))
    x, y = np.concatenate([x, lies]), np.concatenate([y, np.full(400, -1)])
    options = {"normalize": "none", "temperature": 300.0}
    fitted = PrototypeClassifier("soft_kmeans", steps=5, **options).fit(x, y)
    assert fitted.pile_helps_ is False
    assert "the pile does not help" in fitted.message_
    supervised = PrototypeClassifier(None, **options).fit(x, y)
    assert np.array_equal(fitted.prototypes_, supervised.prototypes_)
    assert supervised.pile_helps_ is None


@pytest.mark.parametrize(("shot", "most"), [(1, 0.2), (5, 0.1)])
def test_strangers_are_found_at_the_stated_rate_of_false_rejects(shot, most):
    x, y, _ = data(shot=shot, members=100, strangers=100, noise=2.0)
    fitted = PrototypeClassifier(reject=0.05).fit(x, y)
    queries, _, known = data(shot=0, members=300, strangers=300, seed=1, noise=2.0)
    rejected = fitted.predict(queries) == -1
    assert rejected[known >= 0].mean() < most
    assert rejected[known < 0].mean() > 0.9
    scores = fitted.distractor_score(queries)
    assert ((scores > 0.95) == rejected).all()
    assert ((scores >= 0) & (scores <= 1)).all()


# Files


@pytest.mark.parametrize("names", [["cat", "dog", "elk"], [7, 0, 30]])
def test_a_saved_classifier_predicts_the_same(names, tmp_path):
    x, y, _ = data()
    kind = object if isinstance(names[0], str) else int
    labels = np.array([names[c] if c >= 0 else -1 for c in y], kind)
    fitted = PrototypeClassifier(reject=0.05, steps=2).fit(x, labels)
    fitted.save(tmp_path / "mine.safetensors")
    loaded = PrototypeClassifier.load(tmp_path / "mine.safetensors")
    assert loaded.get_params() == fitted.get_params()
    assert list(loaded.predict(x)) == list(fitted.predict(x))
    assert np.array_equal(loaded.predict_proba(x), fitted.predict_proba(x))
    assert np.array_equal(loaded.distractor_score(x), fitted.distractor_score(x))
    assert loaded.message_ == fitted.message_
    assert loaded.held_out_ == fitted.held_out_ is not None
    loaded.fit(x, labels)


def test_a_file_that_says_nothing_of_what_was_held_out_is_loaded(tmp_path):
    """As older versions wrote it."""
    x, y, _ = data()
    fitted = PrototypeClassifier().fit(x, y)
    fitted.save(tmp_path / "a")
    tensors, metadata = read_tensors(tmp_path / "a")
    ((name, text),) = metadata.items()
    about = json.loads(text)
    del about["held_out"]
    write_tensors(tmp_path / "a", tensors, {name: json.dumps(about)})
    loaded = PrototypeClassifier.load(tmp_path / "a")
    assert loaded.held_out_ is None
    assert np.array_equal(loaded.predict_proba(x), fitted.predict_proba(x))


def test_that_nothing_was_held_out_is_saved_too(tmp_path):
    x, y, _ = data(shot=1)
    PrototypeClassifier().fit(x, y).save(tmp_path / "a")
    assert PrototypeClassifier.load(tmp_path / "a").held_out_ is None


def test_names_of_features_are_saved(tmp_path):
    pd = pytest.importorskip("pandas")
    x, y, _ = data()
    frame = pd.DataFrame(x, columns=[f"f{i}" for i in range(D)])
    PrototypeClassifier().fit(frame, y).save(tmp_path / "a")
    loaded = PrototypeClassifier.load(tmp_path / "a")
    assert list(loaded.feature_names_in_) == list(frame.columns)
    loaded.predict(frame)


# Messages


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"steps": 0}, "steps must be 'auto' or at least 1, not 0"),
        ({"normalize": "l2"}, "unknown normalize 'l2': choose from auto, centered, unit, none"),
        ({"temperature": 0.0}, "temperature must be 'auto' or above 0, not 0.0"),
        ({"temperature": "warm"}, "temperature must be 'auto' or above 0, not 'warm'"),
        ({"reject": 5}, "reject must be None or between 0 and 1, not 5"),
        ({"refiner": "soft_kmean"}, "did you mean 'soft_kmeans'"),
        ({"refiner": "masked_soft_kmeans"}, "has learned parameters, which a name does not bring"),
    ],
)
def test_wrong_parameters_are_named_when_fitting(options, line):
    x, y, _ = data()
    with pytest.raises(InputError) as stopped:
        PrototypeClassifier(**options).fit(x, y)
    assert line in str(stopped.value)


def test_labels_that_cannot_be_used_are_named():
    x, y, _ = data()
    with pytest.raises(InputError, match="fit needs labeled examples: y holds no class"):
        PrototypeClassifier().fit(x, np.full(len(y), -1))
    with pytest.raises(InputError, match="y holds the string '-1'; with string labels"):
        PrototypeClassifier().fit(x, y.astype(str))
    with pytest.raises(InputError, match="score needs labels"):
        PrototypeClassifier().fit(x, y).score(x[y < 0], y[y < 0])
    assert PrototypeClassifier().fit(x, y).score(x, y, sample_weight=np.ones(len(y))) == 1


def test_a_score_that_nothing_can_tell_is_refused():
    x, y, _ = data(shot=1, members=0, strangers=0)
    fitted = PrototypeClassifier(None).fit(x, y)
    assert np.isnan(fitted.stranger_proba_).sum() == 0  # all are labeled
    assert fitted.n_strangers_ is None
    for ask in (fitted.distractor_score, fitted.stranger_proba):
        with pytest.raises(InputError, match="how members of a class score is not known"):
            ask(x)
    with pytest.raises(InputError, match="how members of a class score is not known"):
        PrototypeClassifier(None, reject=0.1).fit(x, y)


def test_files_that_cannot_be_written_or_read_are_named(tmp_path):
    x, y, _ = data()
    with pytest.raises(InputError, match="a refiner is saved by its name"):
        PrototypeClassifier(refine.build("soft_kmeans")).fit(x, y).save(tmp_path / "a")
    strange = PrototypeClassifier().fit(x, y)
    strange.classes_ = np.array([b"a", b"b", b"c"], object)
    with pytest.raises(InputError, match="labels are saved as JSON"):
        strange.save(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    with pytest.raises(InputError, match="no file"):
        PrototypeClassifier.load(tmp_path / "a")
    (tmp_path / "b").write_bytes(b"not this")
    with pytest.raises(InputError, match="b .*damaged"):
        PrototypeClassifier.load(tmp_path / "b")
    from safetensors.torch import save_file

    save_file({"prototypes": torch.zeros(2, 2)}, tmp_path / "c")
    with pytest.raises(InputError, match="was not written by PrototypeClassifier.save"):
        PrototypeClassifier.load(tmp_path / "c")


def test_a_saved_classifier_with_a_flipped_byte_is_refused(tmp_path):
    x, y, _ = data()
    PrototypeClassifier().fit(x, y).save(tmp_path / "a")
    content = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match="its checksum differs"):
        PrototypeClassifier.load(tmp_path / "a")


WRONG_FIELDS = [
    ({"parameters": 3}, "parameters must be an object, not 3"),
    ({"parameters": {"steps": "1"}}, "steps must be 'auto' or at least 1, not '1'"),
    ({"parameters": {"refiner": 3}}, "refiner must be a name, a module or None, not 3"),
    ({"parameters": {"speed": 3}}, "unexpected keyword argument 'speed'"),
    ({"classes": [[1], 2, 3]}, "classes must be a list of strings or numbers, not [[1], 2, 3]"),
    ({"classes": [1, 2]}, "prototypes must be (2 classes, features), not (3, 10)"),
    ({"classes_dtype": 3}, "classes_dtype must be a string, not 3"),
    ({"classes_dtype": "nothing"}, "classes_dtype must be a type of labels, not 'nothing'"),
    ({"classes_dtype": "V8"}, "classes_dtype must be a type of labels, not 'V8'"),
    ({"normalization": "l2"}, "normalization must be one of centered, unit, none, not 'l2'"),
    ({"length": -1}, "length must be a positive number, not -1"),
    ({"stranger_label": None}, "stranger_label must be a string or a number, not None"),
    ({"member_scores": [1]}, "member_scores must be an object, not [1]"),
    ({"member_scores": {"mean": "far"}}, "member_scores.mean must be a number, not 'far'"),
    (
        {"member_scores": {"mean": 1, "spread": 0}},
        "member_scores.spread must be a positive number, not 0",
    ),
    (
        {"member_scores": {"mean": 1, "spread": 1, "freedom": True}},
        "member_scores.freedom must be a positive number, not True",
    ),
    (
        {"member_scores": {"mean": 1, "spread": 1, "freedom": 1, "skew": 1, "held_out": [2, 1]}},
        "member_scores.held_out must be ascending numbers",
    ),
    ({"strangers": {"mean": 1, "variance": 0}}, "strangers.variance must be a positive number"),
    (
        {"strangers": {"mean": 1, "variance": 1, "share": 1}},
        "strangers.share must be between 0 and 1, not 1",
    ),
    ({"count": {"expected": "some"}}, "count.expected must be a number, not 'some'"),
    ({"graph_weight": 0}, "graph_weight must be a positive number, not 0"),
    ({"pull": -1}, "pull must be a number from 0, not -1"),
    ({"share": 1.5}, "share must be a number from 0 to 1, not 1.5"),
    ({"width": "wide"}, "width must be a positive number, not 'wide'"),
    ({"pile_helps": "yes"}, "pile_helps must be true, false or null, not 'yes'"),
    ({"message": None}, "message must be a string, not None"),
    ({"held_out": {"examples": 2.5}}, "held_out.examples must be a count, not 2.5"),
    (
        {"held_out": {"examples": 3, "accuracy": 1.5}},
        "held_out.accuracy must be from 0 to 1, not 1.5",
    ),
    (
        {"held_out": {"examples": 3, "accuracy": 1, "probability": None}},
        "held_out.probability must be from 0 to 1, not None",
    ),
    ({"feature_names": "abcd"}, "feature_names must be a list of strings, not 'abcd'"),
    ({"feature_names": ["a", "b"]}, "feature_names must be none, or 4, not 2"),
]


@pytest.mark.parametrize(("change", "line"), WRONG_FIELDS, ids=str)
def test_a_wrong_field_of_a_saved_classifier_is_named(change, line, tmp_path):
    rng = np.random.default_rng(0)
    PrototypeClassifier().fit(rng.normal(size=(9, 4)), np.arange(9) % 3).save(tmp_path / "a")
    tensors, metadata = read_tensors(tmp_path / "a")
    ((name, text),) = metadata.items()
    write_tensors(tmp_path / "a", tensors, {name: json.dumps({**json.loads(text), **change})})
    with pytest.raises(InputError) as refused:
        PrototypeClassifier.load(tmp_path / "a")
    assert str(refused.value).startswith(f"{tmp_path / 'a'} was not written by PrototypeClassifier")
    assert line in str(refused.value)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"prototypes": None}, "prototypes is missing"),
        ({"prototypes": torch.full((3, 4), torch.nan)}, "prototypes must be finite float32 or"),
        ({"prototypes": torch.ones(3, 4).half()}, "prototypes must be finite float32 or float64"),
        ({"prototypes": torch.ones(12)}, "prototypes must be (3 classes, features), not (12,)"),
        ({"center": torch.ones(2, 2)}, "center must be (features,), not (2, 2)"),
        ({"pivots": torch.ones(9, 5)}, "pivots must be torch.float64 (9, 4), not torch.float32"),
        ({"rows": torch.ones(0)}, "rows must be (rows, features), not (0,)"),
        ({"best": None}, "best is missing"),
        ({"passed": torch.ones(9, 3)}, "passed must be torch.float64 (9, 4), not torch.float32"),
    ],
    ids=str,
)
def test_a_wrong_tensor_of_a_saved_classifier_is_named(change, line, tmp_path):
    rng = np.random.default_rng(0)
    PrototypeClassifier().fit(rng.normal(size=(9, 4)), np.arange(9) % 3).save(tmp_path / "a")
    tensors, metadata = read_tensors(tmp_path / "a")
    held = {name: tensor for name, tensor in {**tensors, **change}.items() if tensor is not None}
    write_tensors(tmp_path / "a", held, metadata)
    with pytest.raises(InputError) as refused:
        PrototypeClassifier.load(tmp_path / "a")
    assert line in str(refused.value)


def test_a_file_of_version_0_1_predicts_what_it_did(tmp_path):
    """It had squared distances of members, and neither strangers nor their label."""
    x, y, _ = data()
    fitted = PrototypeClassifier("fitted_mask", reject=0.05).fit(x, y)
    fitted.save(tmp_path / "a")
    tensors, metadata = read_tensors(tmp_path / "a")
    ((name, text),) = metadata.items()
    held = json.loads(text)
    scores = held.pop("member_scores")
    held["members"] = {
        "mean": -scores["mean"],
        "spread": scores["spread"],
        "freedom": scores["freedom"],
    }
    for new in ("stranger_label", "strangers", "count"):
        held.pop(new)
    held["parameters"].pop("stranger_label")
    write_tensors(tmp_path / "a", tensors, {name: json.dumps(held)})
    loaded = PrototypeClassifier.load(tmp_path / "a")
    assert (loaded.predict(x) == fitted.predict(x)).all()
    assert np.allclose(loaded.distractor_score(x), fitted.distractor_score(x))
    with pytest.raises(InputError, match="how members of a class score is not known"):
        loaded.stranger_proba(x)


@pytest.mark.parametrize("change", [{"graph_weight": None}, {"center": torch.ones(5).double()}])
def test_pivots_without_a_graph_and_a_center_of_another_size_are_refused(change, tmp_path):
    rng = np.random.default_rng(0)
    refiner = "graph" if "graph_weight" in change else "fitted_mask"
    PrototypeClassifier(refiner).fit(rng.normal(size=(9, 4)), np.arange(9) % 3).save(tmp_path / "a")
    tensors, metadata = read_tensors(tmp_path / "a")
    if "graph_weight" in change:
        ((name, text),) = metadata.items()
        held = json.loads(text)
        held.pop("graph_weight")
        metadata = {name: json.dumps(held)}
    else:
        tensors |= change
    write_tensors(tmp_path / "a", tensors, metadata)
    with pytest.raises(
        InputError, match=r"pivots belong to a graph|center must be torch.float64 \(4,\)"
    ):
        PrototypeClassifier.load(tmp_path / "a")


def test_one_label_for_each_of_many_classes_is_no_reason_to_warn():
    """scikit-learn warns of as many classes as samples; the suite turns warnings into errors."""
    features = np.eye(30, dtype=np.float32)
    assert PrototypeClassifier().fit(features, np.arange(30)).score(features, np.arange(30)) == 1


def test_how_far_members_lie_is_told_by_labels_and_pile_together():
    held, in_pile = held_out.Near(2.0, 1.0, 9), held_out.Near(1.0, 3.0, 100)
    both = held_out.combined_members(held, in_pile)  # ten held-out distances, and a pile worth ten
    assert both == held_out.Near(1.5, 5**0.5, 20)
    assert held_out.combined_members(held, None) is held
    assert held_out.combined_members(None, in_pile) is in_pile
    assert held_out.combined_members(None, None) is None
