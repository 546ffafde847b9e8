"""PrototypeClassifier: prototypes refined by a pile of unlabeled features, as a scikit-learn estimator.

Letters: P examples, S labeled examples, N classes, D features.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from semishot.errors import InputError
from semishot.estimator.fitted_model import (
    GRAPH,
    FittedModel,
    Parameters,
    RowAnswers,
    check_reject,
    fit_model,
)
from semishot.estimator.kinds import find_kinds
from semishot.estimator.labels import (
    NAMED_STRANGER,
    UNLABELED,
    Label,
    agreement,
    checked_weights,
    read_labels,
    rejected,
)
from semishot.estimator.models import Doubt
from semishot.estimator.saved_model import read_model, write_model
from semishot.estimator.spaces import as_array
from semishot.estimator.strangers import missed

FLOATS = [np.float32, np.float64]
UNKNOWN = (
    "how members of a class score is not known: it takes two labeled examples of some class, or two "
    "unlabeled ones"
)


class PrototypeClassifier(ClassifierMixin, BaseEstimator):
    """Classifier that learns from a few labeled examples and many unlabeled ones.

    Each class has a prototype, the mean of its labeled examples, which unlabeled examples (`y == -1`)
    refine. Some of them may belong to none of the classes: such *strangers* are told apart, and the user
    may name some of them (`y == -2`). A scikit-learn estimator: it can be cloned, put into a pipeline and
    searched over. N is the number of classes, D of features, P of examples.

    Parameters
    ----------
    refiner
        How unlabeled examples are used. `"graph"`: labels spread over a graph of nearest neighbours, and
        prototypes are refined by what they reach. None: not at all. Or a method of `semishot.refine`
        without learned parameters, by name, such as `"fitted_mask"`, `"soft_kmeans"`, `"oslo"` or
        `"label_propagation"`, or a trained module of it: these need PyTorch, and the pile in memory.
    steps
        How many times the prototypes are refined, at least 1. `"auto"`: 3 times with the graph, else once.
    normalize
        What is done to features before they are compared. `"centered"`: subtract the mean direction, then
        scale to length 1. `"unit"`: scale to length 1. `"none"`: nothing. `"auto"`:
        `"centered"` from 32 features on, else `"none"`.
    temperature
        By how much squared distances are divided before the softmax: a larger temperature gives less
        certain probabilities. `"auto"` chooses it by held-out labeled examples.
    reject
        The share of true members that `predict` may reject, such as 0.05: it then returns
        `stranger_label` for examples that seem less a member than the other 95% of members do. None:
        every example is given a class.
    stranger_label
        What `predict` returns for a rejected example. `"auto"`: -1 where classes are numbers, "stranger"
        where they are strings. In `y` this value, unless it is -1, means the same as -2.

    Attributes
    ----------
    classes_ : ndarray of shape (N,)
        The labels seen by `fit`, sorted, without -1 and strangers.
    stranger_label_ : int or str
        What `predict` returns for a rejected example.
    transduction_ : ndarray of shape (P,)
        The given label of each example of `fit`, or the predicted one. Not saved, nor are the next four.
    label_distributions_ : ndarray of shape (P, N)
        The probability of each class, given that the example belongs to one of them.
    stranger_proba_ : ndarray of shape (P,)
        The probability that an example belongs to none of the classes. NaN if it is not known.
    distractor_score_ : ndarray of shape (P,)
        The share of members that are more clearly members than this example. NaN if it is not known.
    kinds_ : list of Kind
        Groups among likely strangers that look like classes of their own, the largest first: `rows`, the
        most typical first, and `typical`, some of them.
    n_strangers_ : StrangerCount or None
        How many of the unlabeled examples are strangers: `expected`, and a 90% interval, `low` to `high`.
    doubtful_ : list of Doubt
        Labeled examples that the other labels contradict, the strongest contradiction first.
    pile_helps_ : bool or None
        False if held-out labeled examples are predicted worse with the unlabeled examples than without:
        then these are ignored. None if nothing could be held out, and with other refiners than the graph.
    message_ : str
        Whether the unlabeled examples were used, and why, in words.
    held_out_ : HeldOut or None
        How well held-out labeled examples were predicted. None if nothing could be held out.
    members_ : Members or None
        How members score. None if nothing tells.
    strangers_ : Strangers or None
        How strangers score. None if nothing tells.
    model_ : PrototypeModel or GraphModel
        What answers for new examples.
    fitted_ : FittedModel
        All that was learned, as the commands use it.
    prototypes_ : ndarray of shape (N, D)
        The refined prototype of each class, in `space_`.
    space_ : Space or GaussianSpace
        Where examples are compared: `space_(features)` normalizes and scales features of shape (P, D).
    temperature_ : float
        The temperature that was given or chosen.
    normalization_ : str
        The normalization that was given or chosen: `"centered"`, `"unit"` or `"none"`.
    n_features_in_ : int
        The number of features, D.
    feature_names_in_ : ndarray of shape (D,)
        The names of the features, if `X` was a DataFrame whose column names are all strings.

    Examples
    --------
    >>> import numpy as np
    >>> from semishot import PrototypeClassifier
    >>> X = np.array([[0.0, 0.1], [5.0, 5.1], [0.2, 0.0], [5.1, 4.9], [0.1, 0.2]])
    >>> y = np.array([0, 1, -1, -1, -1])  # -1: no label
    >>> PrototypeClassifier().fit(X, y).predict([[0.3, 0.3], [4.8, 5.0]])
    array([0, 1])
    """

    def __init__(
        self,
        refiner: Any = GRAPH,
        *,
        steps: int | str = "auto",
        normalize: str = "auto",
        temperature: float | str = "auto",
        reject: float | None = None,
        stranger_label: Label = "auto",
    ) -> None:
        self.refiner = refiner
        self.steps = steps
        self.normalize = normalize
        self.temperature = temperature
        self.reject = reject
        self.stranger_label = stranger_label

    def fit(
        self,
        X: ArrayLike,  # noqa: N803
        y: Any,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from labeled and unlabeled examples, and from named strangers.

        Parameters
        ----------
        X
            Features of shape (P, D): an array, a tensor or a DataFrame.
        y
            Labels of shape (P,), whole numbers or strings, in an array, a list, a tensor or a Series. -1,
            None, NaN, pandas' NA and `""`: no label. -2: a stranger, which belongs to none of the classes;
            so is the value of `stranger_label`, unless it is -1. In an array of strings use `""` and
            "stranger".
        sample_weight
            Weights of shape (P,) for the labels, relative to their mean. A label of weight 2 counts as two
            of weight 1; with weight 0 the example is unlabeled. Weights of unlabeled examples are ignored.

        Returns
        -------
        Self
            The fitted classifier.
        """
        parameters = Parameters(**self.get_params(deep=False))
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        features = validate_data(self, as_array(X), dtype=FLOATS)
        labels = read_labels(y, self.stranger_label)
        check_consistent_length(features, labels.codes)
        fitted, labels = fit_model(parameters, features, labels, sample_weight)
        names = tuple(getattr(self, "feature_names_in_", ()))
        self._keep(replace(fitted, feature_names=names))
        assert fitted.learned.answer is not None
        classes, scores, _ = fitted.learned.answer
        decided = self._decided(classes.argmax(1), scores)
        if (named := labels.codes == NAMED_STRANGER).any():
            decided = rejected(decided, named, self.stranger_label_)
        decided[labels.labeled] = self.classes_[labels.codes[labels.labeled]]
        self.transduction_ = decided
        answers = fitted.fitted_rows(labels)
        self.label_distributions_, self.stranger_proba_, self.distractor_score_ = answers
        self._in_pile = labels.codes == UNLABELED
        unnamed = np.where(self._in_pile, self.stranger_proba_, 0.0)
        self.kinds_ = find_kinds(features, self.space_, unnamed)
        self.doubtful_ = [
            Doubt(row, self.classes_[given], self.classes_[suggested], probability)
            for row, given, suggested, probability in fitted.learned.doubts
        ]
        return self

    def _keep(self, fitted: FittedModel) -> None:
        learned = fitted.learned
        self.fitted_, self.model_ = fitted, learned.model
        self.prototypes_, self.space_ = learned.model.prototypes, learned.model.space
        self.temperature_ = learned.model.temperature
        self.normalization_ = learned.model.space.normalization
        self.classes_, self.stranger_label_ = fitted.classes, fitted.stranger_label
        self.members_, self.strangers_ = learned.members, learned.strangers
        self.n_strangers_, self.held_out_ = learned.count, learned.held_out
        self.pile_helps_, self.message_ = learned.pile_helps, learned.message

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """(P, D) -> (P,): the most probable class. With `reject`, `stranger_label` for none of them."""
        logits, scores = self._read(X)
        return self._decided(logits.argmax(-1), scores)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.floating[Any]]:  # noqa: N803
        """(P, D) -> (P, N): the probability of each class, given that it is one of them.

        `stranger_proba` is the probability that it is none of them.
        """
        probabilities: NDArray[np.floating[Any]] = softmax(self._read(X)[0], 1)
        return probabilities

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.floating[Any]]:  # noqa: N803
        """(P, D) -> (P, N): the logarithm of `predict_proba`."""
        logarithms: NDArray[np.floating[Any]] = log_softmax(self._read(X)[0], 1)
        return logarithms

    def decision_function(self, X: ArrayLike) -> NDArray[np.floating[Any]]:  # noqa: N803
        """(P, D) -> (P, N): logits, whose softmax is `predict_proba`.

        For two classes (P,), the logarithm of the odds of the second, as scikit-learn expects it.
        """
        logits = self._read(X)[0]
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def stranger_proba(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """(P, D) -> (P,): the probability that an example belongs to none of the classes.

        It assumes that strangers are as frequent as they seem to be among the unlabeled examples of `fit`.
        """
        return self._answers(X).stranger

    def distractor_score(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """(P, D) -> (P,): the share of members that are more clearly members than this example is.

        0.5 is ordinary; a value near 1 means that the example probably belongs to none of the classes.
        """
        return self._answers(X).scores

    def missed_strangers(self, reject: float | None = None) -> float:
        """How many strangers among the unlabeled examples of `fit` are likely not rejected.

        `n_strangers_` less those rejected, of which a share `reject` of the members is no stranger.
        """
        check_is_fitted(self)
        share = self.reject if reject is None else reject
        check_reject(share)
        if self.n_strangers_ is None:
            raise InputError(UNKNOWN)
        if not hasattr(self, "distractor_score_"):
            raise InputError(
                "how many strangers are missed is known after fit only: a saved classifier does not hold "
                "the examples it was given"
            )
        expected = self.n_strangers_.expected
        if share is None:
            return expected
        return missed(expected, self.distractor_score_[self._in_pile], share)

    def score(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None) -> float:  # noqa: N803
        """Accuracy over the rows of `y` that are not unlabeled.

        A row that `y` names a stranger is right if it is rejected; without `reject` it never is.
        """
        features, labels = self._validated(X), read_labels(y, self.stranger_label)
        check_consistent_length(features, labels.codes)
        weights = checked_weights(sample_weight, len(labels.codes))
        rows = np.flatnonzero(labels.codes != UNLABELED)
        if not weights[rows].any():
            why = "all that y has are of weight 0" if len(rows) else "all of y is unlabeled"
            raise InputError(f"score needs labels: {why}")
        logits, scores = self.fitted_.logits(features[rows])
        labels = replace(labels, codes=labels.codes[rows])
        predicted = self._decided(logits.argmax(1), scores)
        right = agreement(predicted, labels, self.classes_, self.stranger_label_)
        return float(np.average(right, weights=weights[rows]))

    def save(self, path: str | Path) -> None:
        """Write everything that prediction needs to one safetensors file.

        With the graph that includes the features of at most some thousand examples; images are not saved.
        """
        check_is_fitted(self)
        write_model(Path(path), replace(self.fitted_, parameters=Parameters(**self.get_params())))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file written by `save`. What describes the examples given to `fit` is not available."""
        return cls.from_fitted(read_model(Path(path)))

    @classmethod
    def from_fitted(cls, fitted: FittedModel) -> Self:
        """The classifier of what a command has fitted or read."""
        loaded = cls(**asdict(fitted.parameters))
        loaded._keep(fitted)
        loaded.n_features_in_ = fitted.features
        if fitted.feature_names:
            loaded.feature_names_in_ = np.array(fitted.feature_names, object)
        return loaded

    def _read(self, X: ArrayLike) -> tuple[NDArray[Any], NDArray[np.float64]]:  # noqa: N803
        """Logits (P, N) and scores (P,)."""
        features = self._validated(X)
        return self.fitted_.logits(features)

    def _answers(self, X: ArrayLike) -> RowAnswers:  # noqa: N803
        features = self._validated(X)
        if self.members_ is None:
            raise InputError(UNKNOWN)
        return self.fitted_.predict(features)

    def _validated(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        check_is_fitted(self)
        features: NDArray[Any] = validate_data(self, as_array(X), reset=False, dtype=FLOATS)
        return features

    def _decided(self, indices: NDArray[np.int64], scores: NDArray[np.float64]) -> NDArray[Any]:
        classes: NDArray[Any] = self.classes_[indices]
        if self.reject is None:
            return classes
        if self.members_ is None:
            raise InputError(UNKNOWN)
        outside = self.members_.share_above(scores) > 1 - self.reject
        return rejected(classes, outside, self.stranger_label_)
