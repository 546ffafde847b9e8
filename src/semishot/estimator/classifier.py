"""PrototypeClassifier: prototypes refined by a pile of unlabeled features, as a scikit-learn estimator.

Letters: P examples, S labeled examples, N classes, D features.
"""

import copy
import warnings
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from semishot import refine
from semishot.errors import InputError
from semishot.estimator.blocks import (
    NORMALIZATIONS,
    Array,
    log_probs_in_blocks,
    mean_direction,
    nearest_in_blocks,
    one_thread,
    refined_in_blocks,
)
from semishot.estimator.held_out import (
    Trial,
    combined_members,
    held_out_summary,
    judge,
    members_held_out,
    members_unlabeled,
)
from semishot.estimator.saved import Learned, is_number, not_saved, read_saved, write_saved
from semishot.estimator.scaling import choose_space, temperature_of

__all__ = ["UNLABELED", "PrototypeClassifier"]

UNLABELED = -1
FLOATS = [np.float32, np.float64]
TRIAL = 1000
"""Of more unlabeled examples than this, trials use evenly spaced ones, at least this many."""


class PrototypeClassifier(ClassifierMixin, BaseEstimator):
    """Nearest-prototype classifier that also learns from unlabeled examples.

    Each class has a prototype, the mean of its labeled examples, which unlabeled examples (`y == -1`)
    refine. Some of them may belong to none of the classes. A scikit-learn estimator: it can be cloned,
    put into a pipeline and searched over. N is the number of classes, D of features, P of examples.

    Parameters
    ----------
    refiner
        How unlabeled examples refine the prototypes. `"fitted_mask"` ignores examples that seem to
        belong to no class; `"soft_kmeans"` uses all of them; any other method of `semishot.refine` that
        has no learned parameters can be named too. A module, such as a trained
        `semishot.refine.build("masked_soft_kmeans")`, is used as it is. None ignores the unlabeled
        examples.
    steps
        How many times the prototypes are refined, at least 1.
    normalize
        What is done to features before distances are measured. `"centered"`: subtract the mean
        direction, then scale to length 1. `"unit"`: scale to length 1. `"none"`: nothing. `"auto"`
        chooses among the three by held-out labeled examples.
    temperature
        By how much squared distances are divided before the softmax that gives probabilities: a larger
        temperature gives less certain probabilities. `"auto"` derives it from the distances between
        prototypes and adjusts it by held-out labeled examples.
    reject
        The share of true members that `predict` may reject, such as 0.05. `predict` then returns -1
        for examples that lie farther from every prototype than the other 95% of members do. None:
        every example is given a class.

    Attributes
    ----------
    classes_ : ndarray of shape (N,)
        The labels seen by `fit`, sorted, without -1.
    prototypes_ : ndarray of shape (N, D)
        The refined prototype of each class, in normalized features divided by the square root of the
        temperature.
    transduction_ : ndarray of shape (P,)
        The label of each example given to `fit`: the given one, or the prediction. Not saved by `save`.
    pile_helps_ : bool or None
        False if held-out labeled examples are predicted worse with the unlabeled examples than without;
        the unlabeled examples are then ignored. True if they are not. None if nothing could be held out
        or nothing was to be refined.
    message_ : str
        Whether the unlabeled examples were used, and why, in words.
    held_out_ : HeldOut or None
        How well held-out labeled examples were predicted. None if nothing could be held out.
    space_ : Space
        Where distances are measured: `space_(features)` normalizes and scales features of shape (P, D).
    members_ : Members or None
        How far members of a class lie from its prototype. None if nothing could be held out to tell.
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
        refiner: str | nn.Module | None = "fitted_mask",
        *,
        steps: int = 1,
        normalize: str = "auto",
        temperature: float | str = "auto",
        reject: float | None = None,
    ) -> None:
        self.refiner = refiner
        self.steps = steps
        self.normalize = normalize
        self.temperature = temperature
        self.reject = reject

    @one_thread()
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803
        """Learn from labeled and unlabeled examples.

        Parameters
        ----------
        X
            Features of shape (P, D): an array, a tensor or a DataFrame.
        y
            Labels of shape (P,), numbers or strings, and -1 where there is no label. With string labels,
            give an object array.

        Returns
        -------
        Self
            The fitted classifier.
        """
        refiner, temperature = self._check_parameters()
        features, answers = validate_data(self, as_array(X), as_array(y), dtype=FLOATS)
        smallest, largest = np.finfo(features.dtype).tiny ** 0.25, check_large(features)
        if 0 < largest < smallest:
            raise InputError(
                f"no feature is larger than {largest:.3g}, and squares of numbers below {smallest:.3g} "
                f"vanish in {features.dtype}: rescale X"
            )
        labeled = is_labeled(answers)
        if not labeled.any():
            raise InputError("fit needs labeled examples: all of y is -1")
        with warnings.catch_warnings():  # one label per class is valid here
            warnings.filterwarnings("ignore", "The number of unique classes")
            check_classification_targets(answers[labeled])
        self.classes_, codes = np.unique(answers[labeled], return_inverse=True)
        labels = torch.zeros(len(answers), len(self.classes_), dtype=tensor(features[:0]).dtype)
        labels[np.flatnonzero(labeled), codes] = 1  # (P, N), a row of zeros for the unlabeled
        refiner = copy.deepcopy(refiner).to(labels) if refiner is not None else None
        self._learn(refiner, temperature, features, labels, labeled)
        self.transduction_ = self._decide(features)
        self.transduction_[labeled] = answers[labeled]
        return self

    def _learn(
        self,
        refiner: nn.Module | None,
        temperature: float | None,
        features: Array,
        labels: Tensor,
        labeled: NDArray[np.bool_],
    ) -> None:
        """Choose the scale, try the unlabeled examples, refine, and adjust the scale."""
        unlabeled = np.flatnonzero(~labeled)
        tried = unlabeled[:: max(1, len(unlabeled) // TRIAL)]
        trial = Trial(tensor(features[labeled]), labels[labeled], tensor(features[tried]))
        center = mean_direction(features)
        space = choose_space(trial.support, trial.labels, center, self.normalize, temperature)
        judgment = judge(refiner, self.steps, trial, space)
        self.pile_helps_, self.message_ = judgment.helps, judgment.message
        used = None if judgment.helps is False else refiner
        prototypes = refined_in_blocks(used, features, labels, space, self.steps)  # (N, D)
        members = combined_members(
            members_held_out(judgment.distances), members_unlabeled(used, self.steps, trial, space)
        )
        change = 1.0  # of the temperature, now that the prototypes are refined
        if temperature is None:
            change = temperature_of(prototypes, judgment.distances, judgment.classes)
        self.held_out_ = held_out_summary(judgment.distances / change, judgment.classes)
        self.space_ = replace(space, length=space.length * change**0.5)
        self.members_ = members.divided_by(change) if members else None
        self.prototypes_ = (prototypes / change**0.5).numpy()

    @property
    def temperature_(self) -> float:
        """The temperature that was given or chosen, a float."""
        return self.space_.length**2

    @property
    def normalization_(self) -> str:
        """The normalization that was given or chosen: `"centered"`, `"unit"` or `"none"`."""
        return self.space_.normalization

    @one_thread()
    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """(P, D) -> (P,): the class of the nearest prototype. With `reject`, -1 for none of the classes."""
        return self._decide(self._check(X))

    @one_thread()
    def predict_proba(self, X: ArrayLike) -> NDArray[np.floating[Any]]:  # noqa: N803
        """(P, D) -> (P, N): the probability of each class, given that it is one of them (Eq. 2)."""
        features = self._check(X)
        return log_probs_in_blocks(features, self.space_, self._prototypes()).exp().numpy()

    @one_thread()
    def distractor_score(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """(P, D) -> (P,): the share of members that lie nearer to their prototype than this example does.

        0.5 is ordinary; a value near 1 means that the example probably belongs to none of the classes.
        """
        features = self._check(X)
        return self._share_nearer(nearest_in_blocks(features, self.space_, self._prototypes())[0])

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:  # noqa: N803
        """Accuracy on the labeled rows. Rows with `y == -1` are ignored."""
        features, answers = as_array(X), np.asarray(as_array(y))
        labeled = is_labeled(answers)
        if not labeled.any():
            raise InputError("score needs labels: all of y is -1")
        if sample_weight is not None:
            sample_weight = np.asarray(sample_weight)[labeled]
        rows = np.flatnonzero(labeled)
        features = features.iloc[rows] if hasattr(features, "iloc") else np.asarray(features)[rows]
        accuracy: float = super().score(features, answers[labeled], sample_weight)
        return accuracy

    def save(self, path: str | Path) -> None:
        """Write everything that prediction needs to one safetensors file. No training data are saved."""
        check_is_fitted(self)
        if isinstance(self.refiner, nn.Module):
            raise InputError("a refiner is saved by its name; this one is a module")
        learned = Learned(
            self.classes_,
            self._prototypes(),
            self.space_,
            self.members_,
            self.pile_helps_,
            self.message_,
            self.held_out_,
            list(getattr(self, "feature_names_in_", [])),
        )
        write_saved(Path(path), self.get_params(), learned)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file written by `save`. `transduction_` is not available."""
        parameters, learned = read_saved(Path(path))
        try:
            loaded = cls(**parameters)
            loaded._check_parameters()
        except (TypeError, ValueError) as error:
            raise not_saved(path, error) from error
        loaded.classes_, loaded.prototypes_ = learned.classes, learned.prototypes.numpy()
        loaded.n_features_in_ = learned.prototypes.shape[1]
        loaded.space_, loaded.members_ = learned.space, learned.members
        loaded.pile_helps_, loaded.message_ = learned.pile_helps, learned.message
        loaded.held_out_ = learned.held_out
        if learned.feature_names:
            loaded.feature_names_in_ = np.array(learned.feature_names, object)
        return loaded

    def _check_parameters(self) -> tuple[nn.Module | None, float | None]:
        """The refiner, and the temperature if it is given."""
        steps: Any = self.steps
        if not isinstance(steps, Integral) or int(steps) < 1:
            raise InputError(
                f"steps must be at least 1, not {steps!r}; refiner=None refines nothing"
            )
        if self.normalize not in ("auto", *NORMALIZATIONS):
            choices = ", ".join(("auto", *NORMALIZATIONS))
            raise InputError(f"unknown normalize {self.normalize!r}: choose from {choices}")
        temperature = None if self.temperature == "auto" else self.temperature
        if temperature is not None and not (is_number(temperature) and float(temperature) > 0):
            raise InputError(f"temperature must be 'auto' or above 0, not {temperature!r}")
        if self.reject is not None and not (is_number(self.reject) and 0 < self.reject < 1):
            raise InputError(f"reject must be None or between 0 and 1, not {self.reject!r}")
        refiner = self.refiner
        if isinstance(refiner, str):
            refiner = refine.build(refiner)
            if any(True for _ in refiner.parameters()):
                raise InputError(
                    f"{self.refiner!r} has learned parameters, which a name does not bring: give the "
                    "trained module, or 'fitted_mask', which needs no training"
                )
        elif not (refiner is None or isinstance(refiner, nn.Module)):
            raise InputError(f"refiner must be a name, a module or None, not {refiner!r}")
        return refiner, None if temperature is None else float(temperature)

    def _check(self, X: ArrayLike) -> Array:  # noqa: N803
        check_is_fitted(self)
        features: Array = validate_data(self, as_array(X), reset=False, dtype=FLOATS)
        check_large(features)
        return features

    def _decide(self, features: Array) -> NDArray[Any]:
        distances, places = nearest_in_blocks(features, self.space_, self._prototypes())
        classes: NDArray[Any] = self.classes_[places.numpy()]
        if self.reject is not None:
            if classes.dtype.kind not in "if":
                classes = classes.astype(object)  # so that it can hold -1
            classes[self._share_nearer(distances) > 1 - self.reject] = UNLABELED
        return classes

    def _prototypes(self) -> Tensor:
        return tensor(self.prototypes_)

    def _share_nearer(self, distances: Tensor) -> NDArray[np.float64]:
        if self.members_ is None:
            raise InputError(
                "how far members of a class may lie is not known: it takes two labeled examples of some "
                "class, or two unlabeled ones"
            )
        return self.members_.share_nearer(distances.double().numpy())


def as_array(values: Any) -> Any:
    """A tensor as an array; anything else unchanged."""
    if not isinstance(values, Tensor):
        return values
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()


def check_large(features: Array) -> float:
    """The largest magnitude; an error if the squares of such numbers may overflow."""
    largest, limit = max(features.max(), -features.min()), np.finfo(features.dtype).max ** 0.4
    if largest > limit:
        raise InputError(
            f"features reach {largest:.3g}, and squares of numbers above {limit:.3g} may overflow in "
            f"{features.dtype}: rescale X, or give float64"
        )
    return float(largest)


def is_labeled(y: NDArray[Any]) -> NDArray[np.bool_]:
    """(P,) -> (P,): where y is not -1."""
    if y.dtype.kind in "US":
        if (y == str(UNLABELED)).any():
            raise InputError(
                "y holds the string '-1'; with string labels give y as an object array, "
                "so that -1 stays a number and means unlabeled"
            )
        return np.ones(len(y), bool)
    return np.asarray(y != UNLABELED, bool)


def tensor(rows: Array) -> Tensor:
    return torch.from_numpy(np.array(rows))
