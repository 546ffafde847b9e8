"""What commands use is PrototypeClassifier, to the bit, without scikit-learn."""

import json

import numpy as np
import pytest

from semishot import PrototypeClassifier, next_to_label
from semishot.errors import InputError
from semishot.estimator.saved import FORMAT
from semishot.estimator.settings import DEFAULTS
from semishot.estimator.strangers import missed
from semishot.estimator.trained import Trained, train
from semishot.system.tensor_files import read_tensors, write_tensors

REJECT = 0.07


@pytest.fixture(scope="module")
def pile() -> tuple[np.ndarray, np.ndarray]:
    """Two classes with 3 and 2 labels, a named stranger, and 40 rows of which some are strangers."""
    rng = np.random.default_rng(3)
    owner = np.array([0, 0, 0, 1, 1, 2, *rng.integers(0, 3, 40)])
    features = 2 * rng.normal(size=(3, 36))[owner] + rng.normal(size=(46, 36))
    labels = np.array(["a", "a", "a", "b", "b", -2, *[-1] * 40], object)
    return features.astype(np.float32), labels


def test_the_parameters_are_those_of_the_estimator():
    assert PrototypeClassifier().get_params() == DEFAULTS
    assert list(PrototypeClassifier().get_params()) == list(DEFAULTS)  # files have the same bytes


def test_it_learns_and_answers_as_the_estimator_does(pile):
    features, labels = pile
    trained, learned, rows = train(features, labels, REJECT)
    ours = PrototypeClassifier(reject=REJECT).fit(features, labels)
    np.testing.assert_array_equal(rows.classes, ours.label_distributions_)
    np.testing.assert_array_equal(rows.stranger, ours.stranger_proba_)
    np.testing.assert_array_equal(rows.scores, ours.distractor_score_)
    new = features + 0.1
    answers = trained.answers(new)
    np.testing.assert_array_equal(answers.classes, ours.predict_proba(new))
    np.testing.assert_array_equal(answers.stranger, ours.stranger_proba(new))
    np.testing.assert_array_equal(answers.scores, ours.distractor_score(new))
    some = rows.of_rows([5, 0])
    assert some.stranger.tolist() == [1, 0]
    assert some.classes[1].tolist() == [1, 0]
    assert trained.features == ours.n_features_in_
    assert learned.count is not None
    assert missed(learned.count.expected, rows.scores[6:], REJECT) == ours.missed_strangers()
    assert len(next_to_label(features[6:], ours))


def test_a_share_that_is_not_known_is_nan_for_labeled_rows_too():
    fitted = PrototypeClassifier(None).fit([[0.0, 1.0], [4.0, 1.0]], ["a", "b"])
    assert fitted.members_ is None
    assert np.isnan(fitted.distractor_score_).all()
    assert fitted.stranger_proba_.tolist() == [0, 0]  # their labels say so


def test_its_file_is_the_estimators(pile, tmp_path):
    features, labels = pile
    trained, _, _ = train(features, labels, REJECT)
    trained.save(tmp_path / "ours")
    PrototypeClassifier(reject=REJECT).fit(features, labels).save(tmp_path / "theirs")
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    again = Trained.load(tmp_path / "theirs")
    assert again.parameters == trained.parameters
    np.testing.assert_array_equal(again.answers(features).scores, trained.answers(features).scores)
    assert PrototypeClassifier.load(tmp_path / "ours").reject == REJECT


@pytest.mark.parametrize(
    ("parameters", "line"),
    [
        ({"refiners": "graph"}, "unknown parameter 'refiners'"),
        ({"reject": 2}, "reject must be None or between 0 and 1, not 2"),
    ],
)
def test_a_file_with_other_parameters_is_refused(parameters, line, pile, tmp_path):
    path = tmp_path / "classifier.safetensors"
    train(*pile, REJECT)[0].save(path)
    tensors, metadata = read_tensors(path)
    about = json.loads(metadata[FORMAT]) | {"parameters": parameters}
    write_tensors(path, tensors, {FORMAT: json.dumps(about)})
    with pytest.raises(InputError, match=f"was not written by PrototypeClassifier.save: {line}"):
        Trained.load(path)


def test_a_pile_needs_a_label(pile):
    features, labels = pile
    with pytest.raises(InputError, match="fit needs labeled examples"):
        train(features, np.where(labels == -2, -2, -1).astype(object), REJECT)
