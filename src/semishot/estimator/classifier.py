"""PrototypeClassifier: prototypes refined by a pile of unlabeled features, as a scikit-learn estimator.

Letters: P examples, S labeled examples, N classes, D features.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from semishot.errors import InputError
from semishot.estimator.answers import Answer
from semishot.estimator.fitted_model import (
    LEARNED,
    FittedModel,
    Parameters,
    fit_model,
    read_model,
    write_model,
)
from semishot.estimator.kinds import find_kinds
from semishot.estimator.labels import NAMED_STRANGER, UNLABELED, Label, Labels, read_labels
from semishot.estimator.spaces import Array, as_array

FLOATS = [np.float32, np.float64]
TINY = 1e-12


class PrototypeClassifier(ClassifierMixin, BaseEstimator):
    """Classifier that learns from a few labeled examples and many unlabeled ones.

    Each class has a prototype, the mean of its labeled examples, which unlabeled examples (`y == -1`)
    refine. Some of them may belong to none of the classes: such *strangers* are told apart, and the user
    may name some of them (`y == -2`). A scikit-learn estimator: it can be cloned, put into a pipeline and
    searched over. N is the number of classes, D of features, P of examples.

    Parameters
    ----------
    refiner
        How unlabeled examples are used. `"learned"`: by a rule that was learned from many piles. None: not
        at all. Or a method of `semishot.refine` without learned parameters, by name, such as
        `"fitted_mask"`, `"soft_kmeans"`, `"oslo"` or `"label_propagation"`, or a trained module of it: it
        refines the prototypes that choose the class, and needs PyTorch and the pile in memory.
    steps
        How many times a refiner refines the prototypes, at least 1.
    normalize
        What is done to features before they are compared. `"centered"`: subtract the mean direction, then
        scale to length 1. `"unit"`: scale to length 1. `"none"`: distances between unchanged features
        count. `"auto"`: few features are compared by distances, many by centered directions, and features
        of very unequal scale are standardized.
    temperature
        By how much squared distances to refined prototypes are divided before the softmax: a larger
        temperature gives less certain probabilities. `"auto"` chooses it by held-out labeled examples.
    reject
        None: every example is given a class. `"auto"`: `predict` returns `stranger_label` where that is more
        probable than any class. A share, such as 0.05: where the probability of a stranger is so high that
        about this share of true members is lost; never below 0.02, nor above 0.9.
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
        The given label of each example of `fit`, or the predicted one. Not saved, nor are the next three.
    label_distributions_ : ndarray of shape (P, N)
        The probability of each class, given that the example belongs to one of them.
    stranger_proba_ : ndarray of shape (P,)
        The probability that an example belongs to none of the classes.
    kinds_ : list of Kind
        Groups among likely strangers that look like classes of their own, the largest first: `rows`, the
        most typical first, and `typical`, some of them.
    n_strangers_ : StrangerCount
        How many of the unlabeled examples are strangers: `expected`, the sum of their probabilities, and a
        90% interval, `low` to `high`.
    doubtful_ : list of Doubt
        Labeled examples that the other labels contradict, the strongest contradiction first.
    message_ : str
        How the unlabeled examples were used, in words.
    held_out_ : HeldOut or None
        How well held-out labeled examples were predicted. None if nothing could be held out.
    cutoff_ : float or None
        The probability of a stranger above which `predict` rejects. None: where it is the most probable, or
        nothing is rejected.
    fitted_ : FittedModel
        All that was learned, as the commands use it; `fitted_.learned.model` answers for new examples.
    prototypes_ : ndarray of shape (N, D)
        The refined prototype of each class, in the space where examples are compared.
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
        refiner: Any = LEARNED,
        *,
        steps: int = 1,
        normalize: str = "auto",
        temperature: float | str = "auto",
        reject: float | str | None = None,
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
        class_features: Mapping[Label, ArrayLike] | None = None,
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
            scikit-learn's check_sample_weight_equivalence fails: it expects examples of weight 0 to be
            absent, and here they stay in the pile.
        class_features
            What the classes' names look like, such as a text encoder's features of them: a dictionary from
            class to D numbers. A class with a name needs no labeled example.

        Returns
        -------
        Self
            The fitted classifier.
        """
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        parameters = Parameters(**self.get_params(deep=False))
        features = validate_data(self, as_array(X), dtype=FLOATS, accept_sparse="csr")
        labels, weights = self._labels(features, y, sample_weight)
        fitted, answer, codes = fit_model(parameters, features, labels, weights, class_features)
        self._keep(replace(fitted, feature_names=tuple(getattr(self, "feature_names_in_", ()))))
        self.transduction_ = self._decided(answer, codes == NAMED_STRANGER)
        self.label_distributions_, self.stranger_proba_ = answer.classes, answer.stranger
        pile = codes == UNLABELED
        self._pile_answer = answer.take(pile)
        unnamed = np.where(pile, self.stranger_proba_, 0.0)
        self.kinds_ = find_kinds(features, fitted.learned.model.space, unnamed)
        names_of = [*self.classes_, self.stranger_label_]  # -1 is the last
        self.doubtful_ = [
            doubt._replace(given=names_of[doubt.given], suggested=names_of[doubt.suggested])
            for doubt in fitted.learned.doubts
        ]
        return self

    def _keep(self, fitted: FittedModel) -> None:
        learned = fitted.learned
        self.fitted_ = fitted
        self.prototypes_ = learned.model.prototypes
        self.classes_, self.stranger_label_ = fitted.classes, fitted.stranger_label
        self.n_strangers_, self.held_out_ = learned.count, learned.held_out
        self.message_ = learned.message

    @property
    def cutoff_(self) -> float | None:
        return self._now().cutoff

    def _now(self, **changed: Any) -> FittedModel:
        """What was fitted, with today's parameters: `reject` may have been set since."""
        return replace(self.fitted_, parameters=Parameters(**{**self.get_params(False), **changed}))

    def _decided(self, answer: Answer, named: NDArray[np.bool_] | bool = False) -> NDArray[Any]:
        """(P,), the most probable classes, and the label of strangers, some of which the user has named."""
        out = self._now().strangers(answer) | named
        classes: NDArray[Any] = self.classes_[answer.classes.argmax(1)]
        if out.any():  # of a type that holds both
            smallest = np.min_scalar_type(self.stranger_label_)
            classes = classes.astype(np.result_type(classes.dtype, smallest))
            classes[out] = self.stranger_label_
        return classes

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """(P, D) -> (P,): the most probable class. With `reject`, `stranger_label` for none of them."""
        return self._decided(self._answers(X))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.floating[Any]]:  # noqa: N803
        """(P, D) -> (P, N): the probability of each class, given that it is one of them.

        `stranger_proba` is the probability that it is none of them.
        """
        return self._answers(X).classes

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.floating[Any]]:  # noqa: N803
        """(P, D) -> (P, N): the logarithm of `predict_proba`."""
        log_proba: NDArray[np.floating[Any]] = np.log(np.maximum(self.predict_proba(X), TINY))
        return log_proba

    def decision_function(self, X: ArrayLike) -> NDArray[np.floating[Any]]:  # noqa: N803
        """(P, D) -> (P, N): logarithms of `predict_proba`.

        For two classes (P,), the logarithm of the odds of the second, as scikit-learn expects it.
        """
        logits = self.predict_log_proba(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def stranger_proba(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """(P, D) -> (P,): the probability that an example belongs to none of the classes.

        It assumes that strangers are as frequent as they seem to be among the unlabeled examples of `fit`.
        """
        return self._answers(X).stranger

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """(P, D) -> (P,): the log-odds of belonging to one of the classes, low for strangers."""
        return -self._answers(X).log_odds

    def missed_strangers(self, reject: float | str | None = None) -> float:
        """How many strangers among the unlabeled examples of `fit` are likely not rejected: the sum of the
        probabilities of those that are kept. `reject` replaces the classifier's own."""
        answer, out = self._pile(reject)
        return float(answer.stranger[~out].sum())

    def likely_wrong(self, reject: float | str | None = None) -> float:
        """How many unlabeled examples of `fit` are likely sorted wrong, into the wrong class or as a stranger
        or not. `reject` replaces the classifier's own."""
        answer, out = self._pile(reject)
        return float(answer.wrong(out).sum())

    def _pile(self, reject: float | str | None) -> tuple[Answer, NDArray[np.bool_]]:
        """What is said of the unlabeled examples, and which of them are rejected."""
        check_is_fitted(self)
        if not hasattr(self, "_pile_answer"):
            raise InputError(
                "this is known after fit only: a saved classifier does not hold the examples it was given"
            )
        now = self._now() if reject is None else self._now(reject=reject)
        return self._pile_answer, now.strangers(self._pile_answer)

    def score(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None) -> float:  # noqa: N803
        """Accuracy over the rows of `y` that are not unlabeled.

        A row that `y` names a stranger is right if it is rejected; without `reject` it never is.
        """
        answer = self._answers(X)
        labels, weights = self._labels(answer.log_odds, y, sample_weight)
        weights = np.where(labels.codes == UNLABELED, 0.0, weights)
        if not weights.any():
            raise InputError("score needs labels: all of y is unlabeled or of weight 0")
        truth = np.array([*labels.classes.tolist(), self.stranger_label_, None], object)
        right = self._decided(answer).astype(object) == truth[labels.codes]
        return float(np.average(right, weights=weights))

    def save(self, path: str | Path) -> None:
        """Write everything that prediction needs to one safetensors file.

        That includes the features of at most some thousand examples; images are not saved.
        """
        check_is_fitted(self)
        write_model(Path(path), self._now())

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

    def _labels(self, rows: Any, y: Any, sample_weight: Any) -> tuple[Labels, Array]:
        """The labels of these rows, and their weights (P,)."""
        labels = read_labels(y, self.stranger_label)
        check_consistent_length(rows, labels.codes)
        weights: Array = _check_sample_weight(
            as_array(sample_weight), labels.codes, dtype=np.float64, ensure_non_negative=True
        )
        return labels, weights

    def _answers(self, X: ArrayLike) -> Answer:  # noqa: N803
        check_is_fitted(self)
        features = validate_data(self, as_array(X), reset=False, dtype=FLOATS, accept_sparse="csr")
        return self.fitted_.predict(features)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
