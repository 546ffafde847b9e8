"""PrototypeClassifier: scikit-learn's contract, the promises of docs/estimator.md, and every message."""

import re

import numpy as np
import pytest

import semishot
from semishot import PrototypeClassifier
from semishot.errors import InputError
from semishot.estimator import next_labels
from support.optional_torch import module_or_skip
from support.piles import pile

torch = module_or_skip("torch")
refine = module_or_skip("semishot.refine")

N, D = 3, 40


def data(shot=2, members=10, strangers=15, seed=0, noise=1.0):
    """Some members of each class, and a cluster that is none of the classes: -1 in the truth."""
    x, y, truth = pile(N * members, strangers, shot, noise=noise / 3, seed=seed)
    return 3 * x, y, np.where(truth == N, -1, truth)


def loose(**options):
    """Noise as large as the classes are apart: nothing is certain."""
    return data(noise=6.0, **options)


def same(one, other, x):
    return np.allclose(one.predict_proba(x), other.predict_proba(x), atol=1e-6)


# The contract


def test_public_names_are_loaded_when_asked_for():
    with pytest.raises(AttributeError, match="no attribute 'Prototypes'"):
        _ = semishot.Prototypes
    assert semishot.next_to_label is next_labels.next_to_label


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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_precision_of_the_features_is_kept(dtype):
    x, y, _ = data()
    fitted = PrototypeClassifier().fit(x.astype(dtype), y)
    assert fitted.prototypes_.dtype == dtype


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
        scores = np.exp(-(d - d.min()) / fitted.fitted_.learned.model.space.length**2)
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
    assert np.allclose(fitted.prototypes_, p)
    single = PrototypeClassifier(refiner.float(), normalize="none", temperature=1.0)
    assert single.fit(x / 9, y).prototypes_.dtype == np.float64  # whatever the refiner's


@pytest.mark.parametrize("refiner", ["learned", "fitted_mask"])
def test_a_memory_mapped_pile(refiner, tmp_path):
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


# The verdicts


@pytest.mark.parametrize("refiner", ["learned", "fitted_mask"])
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
    right, count = map(int, re.search(r"(\d+) of (\d+) labels", fitted.message_).groups())
    assert fitted.held_out_.examples == count
    assert fitted.held_out_.accuracy == pytest.approx(right / count)
    assert 1 / len(fitted.classes_) < fitted.held_out_.probability < 1
    one, labels, _ = data(shot=1, members=20, strangers=20)
    assert PrototypeClassifier().fit(one, labels).held_out_ is None


@pytest.mark.parametrize(("shot", "most"), [(1, 0.2), (5, 0.1)])
def test_strangers_are_found_at_the_stated_rate_of_false_rejects(shot, most):
    x, y, _ = data(shot=shot, members=100, strangers=100, noise=2.0)
    fitted = PrototypeClassifier(reject=0.05).fit(x, y)
    queries, _, known = data(shot=0, members=300, strangers=300, seed=1, noise=2.0)
    rejected = fitted.predict(queries) == -1
    assert rejected[known >= 0].mean() < most
    assert rejected[known < 0].mean() > 0.9


# Messages


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"normalize": "l2"}, "unknown normalize 'l2': choose from auto, centered, unit, none"),
        ({"temperature": 0.0}, "temperature must be 'auto' or above 0, not 0.0"),
        ({"temperature": "warm"}, "temperature must be 'auto' or above 0, not 'warm'"),
        ({"reject": 5}, "reject must be None, 'auto' or between 0 and 1, not 5"),
        ({"reject": True}, "reject must be None, 'auto' or between 0 and 1, not True"),
        ({"stranger_label": [1]}, "stranger_label must be 'auto', a string"),
        ({"refiner": object}, "refiner must be a name, a module or None"),
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
