"""PrototypeClassifier: prototypes refined by a pile of unlabeled features, as a scikit-learn estimator.

Letters: M examples, S of them labeled, N classes, D features.
"""

import copy
import json
import warnings
from dataclasses import asdict, replace
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple, Self

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
    Space,
    log_probs_in_blocks,
    mean_direction,
    nearest_in_blocks,
    one_thread,
    refined_in_blocks,
)
from semishot.estimator.held_out import (
    Members,
    Task,
    judge,
    members_by,
    members_held_out,
    members_in_pile,
)
from semishot.estimator.scaling import choose_space, temperature_of
from semishot.system.tensor_files import read_tensors, write_tensors

__all__ = ["UNLABELED", "PrototypeClassifier"]

UNLABELED = -1
FORMAT = "semishot.PrototypeClassifier"
FLOATS = [np.float32, np.float64]
TRIAL = 1000
"""Unlabeled examples that the trials need at least; of a larger pile, evenly spaced ones."""


class HeldOut(NamedTuple):
    """Labeled examples held out in turn: how many, the share that is right, their mean probability."""

    examples: int
    accuracy: float
    probability: float

    def is_possible(self) -> bool:
        """Of one that comes from a file."""
        shares = (self.accuracy, self.probability)
        counted = type(self.examples) is int and self.examples > 0
        return counted and all(is_number(share) and 0 <= share <= 1 for share in shares)


class PrototypeClassifier(ClassifierMixin, BaseEstimator):
    """Nearest-prototype classifier that also learns from unlabeled examples.

    Each class has a prototype, the mean of its labeled examples, which unlabeled examples (`y == -1`)
    refine. Some of them may belong to none of the classes. A scikit-learn estimator: it can be cloned,
    put into a pipeline and searched over. N is the number of classes, D of features, M of examples.

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
    transduction_ : ndarray of shape (M,)
        The label of each example given to `fit`: the given one, or the prediction. Not saved by `save`.
    pile_helps_ : bool or None
        False if held-out labeled examples are predicted worse with the unlabeled examples than without;
        the unlabeled examples are then ignored. True if they are not. None if nothing could be held out
        or nothing was to be refined.
    message_ : str
        Whether the unlabeled examples were used, and why, in words.
    held_out_ : HeldOut or None
        How well held-out labeled examples were predicted. None if nothing could be held out.
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
            Features of shape (M, D): an array, a tensor or a DataFrame.
        y
            Labels of shape (M,), numbers or strings, and -1 where there is no label. With string labels,
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
        with warnings.catch_warnings():  # one label per class is no mistake here
            warnings.filterwarnings("ignore", "The number of unique classes")
            check_classification_targets(answers[labeled])
        self.classes_, codes = np.unique(answers[labeled], return_inverse=True)
        labels = torch.zeros(len(answers), len(self.classes_), dtype=tensor(features[:0]).dtype)
        labels[np.flatnonzero(labeled), codes] = 1  # (M, N), a row of zeros for the unlabeled
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
        """Scale, trial, refinement, and the scale once more."""
        unlabeled = np.flatnonzero(~labeled)
        tried = unlabeled[:: max(1, len(unlabeled) // TRIAL)]
        task = Task(tensor(features[labeled]), labels[labeled], tensor(features[tried]))
        center = mean_direction(features)
        space = choose_space(task.support, task.labels, center, self.normalize, temperature)
        judgment = judge(refiner, self.steps, task, space)
        self.pile_helps_, self.message_ = judgment.helps, judgment.words
        used = None if judgment.helps is False else refiner
        prototypes = refined_in_blocks(used, features, labels, space, self.steps)  # (N, D)
        members = members_by(
            members_held_out(judgment.distances), members_in_pile(used, self.steps, task, space)
        )
        change = 1.0  # of the temperature, now that the prototypes are refined
        if temperature is None:
            change = temperature_of(prototypes, judgment.distances, judgment.classes)
        self.held_out_ = held_out_summary(judgment.distances / change, judgment.classes)
        self._space = replace(space, length=space.length * change**0.5)
        self._members = members.over(change) if members else None
        self.prototypes_ = (prototypes / change**0.5).numpy()

    @property
    def temperature_(self) -> float:
        """The temperature that was given or chosen, a float."""
        return self._space.length**2

    @property
    def normalization_(self) -> str:
        """The normalization that was given or chosen: `"centered"`, `"unit"` or `"none"`."""
        return self._space.normalization

    @one_thread()
    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """(M, D) -> (M,): the class of the nearest prototype. With `reject`, -1 for none of the classes."""
        return self._decide(self._check(X))

    @one_thread()
    def predict_proba(self, X: ArrayLike) -> NDArray[np.floating[Any]]:  # noqa: N803
        """(M, D) -> (M, N): the probability of each class, given that it is one of them (Eq. 2)."""
        features = self._check(X)
        return log_probs_in_blocks(features, self._space, self._landmarks()).exp().numpy()

    @one_thread()
    def distractor_score(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """(M, D) -> (M,): the share of members that lie nearer to their prototype than this example does.

        0.5 is ordinary; a value near 1 means that the example probably belongs to none of the classes.
        """
        features = self._check(X)
        return self._share_nearer(nearest_in_blocks(features, self._space, self._landmarks())[0])

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
        about = {
            "parameters": self.get_params(),
            "classes": self.classes_.tolist(),
            "classes_dtype": self.classes_.dtype.str,
            "normalization": self._space.normalization,
            "length": self._space.length,
            "members": self._members and asdict(self._members),
            "pile_helps": self.pile_helps_,
            "held_out": self.held_out_ and self.held_out_._asdict(),
            "message": self.message_,
            "feature_names": getattr(self, "feature_names_in_", np.empty(0)).tolist(),
        }
        tensors = {"prototypes": self._landmarks(), "center": self._space.center}
        try:
            text = json.dumps(about)
        except TypeError as error:
            raise InputError(f"labels are saved as JSON: strings or numbers ({error})") from error
        write_tensors(Path(path), tensors, {FORMAT: text})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file written by `save`. `transduction_` is not available."""
        try:
            tensors, metadata = read_tensors(Path(path))
            about = json.loads(metadata[FORMAT])
            loaded = cls(**about["parameters"])
            loaded._check_parameters()
            loaded._take(about, tensors["prototypes"], tensors["center"])
        except FileNotFoundError as error:
            raise InputError(f"no file {path}") from error
        except Exception as error:  # a file may say anything of itself
            raise InputError(f"{path} was not written by PrototypeClassifier.save") from error
        return loaded

    def _take(self, about: dict[str, Any], prototypes: Tensor, center: Tensor) -> None:
        """What a file says was learned; ValueError where that cannot be."""
        self.classes_ = saved_classes(about["classes"], about["classes_dtype"])
        self.prototypes_, self.n_features_in_ = prototypes.numpy(), prototypes.shape[1]
        self._space = Space(about["normalization"], center, about["length"])
        self._members = about["members"] and Members(**about["members"])
        self.pile_helps_, self.message_ = about["pile_helps"], about["message"]
        held_out = about.get("held_out")  # older files have none
        self.held_out_ = held_out and HeldOut(**held_out)
        names = about["feature_names"]
        members = list(about["members"].values()) if about["members"] else [1.0]
        if (
            self.prototypes_.shape != (len(self.classes_), self.n_features_in_)
            or 0 in self.prototypes_.shape
            or center.shape != (self.n_features_in_,)
            or {prototypes.dtype, center.dtype} not in ({torch.float32}, {torch.float64})
            or not (prototypes.isfinite().all() and center.isfinite().all())
            or self._space.normalization not in NORMALIZATIONS
            or not all(is_number(n) and np.isfinite(n) for n in (self._space.length, *members))
            or not (self._space.length > 0 and min(members[1:], default=1.0) > 0)
            or self.pile_helps_ not in (None, True, False)
            or not isinstance(self.message_, str)
            or not (self.held_out_ is None or self.held_out_.is_possible())
            or len(names) not in (0, self.n_features_in_)
            or not all(isinstance(name, str) for name in names)
        ):
            raise ValueError("it contradicts itself")
        if names:
            self.feature_names_in_ = np.array(names, object)

    def _check_parameters(self) -> tuple[nn.Module | None, float | None]:
        """The refiner, and the temperature if it is given."""
        if self.steps < 1:
            raise InputError(
                f"steps must be at least 1, not {self.steps}; refiner=None refines nothing"
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
        return refiner, None if temperature is None else float(temperature)

    def _check(self, X: ArrayLike) -> Array:  # noqa: N803
        check_is_fitted(self)
        features: Array = validate_data(self, as_array(X), reset=False, dtype=FLOATS)
        check_large(features)
        return features

    def _decide(self, features: Array) -> NDArray[Any]:
        distances, places = nearest_in_blocks(features, self._space, self._landmarks())
        classes: NDArray[Any] = self.classes_[places.numpy()]
        if self.reject is not None:
            if classes.dtype.kind not in "if":
                classes = classes.astype(object)  # which can hold -1
            classes[self._share_nearer(distances) > 1 - self.reject] = UNLABELED
        return classes

    def _landmarks(self) -> Tensor:
        return tensor(self.prototypes_)

    def _share_nearer(self, distances: Tensor) -> NDArray[np.float64]:
        if self._members is None:
            raise InputError(
                "how far members of a class may lie is not known: it takes two labeled examples of some "
                "class, or two unlabeled ones"
            )
        return self._members.share_nearer(distances.double().numpy())


def held_out_summary(distances: Tensor, classes: Tensor) -> HeldOut | None:
    """(H, N), (H,): whether the probabilities keep what they promise, by what was held out."""
    if not len(classes):
        return None
    probability, places = (-distances).softmax(-1).max(-1)
    return HeldOut(
        len(classes), float((places == classes).double().mean()), float(probability.double().mean())
    )


def as_array(values: Any) -> Any:
    """A tensor as an array; anything else as it is."""
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
    """(M,) -> (M,): where y is not -1."""
    if y.dtype.kind in "US":
        if (y == str(UNLABELED)).any():
            raise InputError(
                "y holds the string '-1'; with string labels give y as an object array, "
                "so that -1 stays a number and means unlabeled"
            )
        return np.ones(len(y), bool)
    return np.asarray(y != UNLABELED, bool)


def is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def saved_classes(values: list[Any], kind: str) -> NDArray[Any]:
    """Labels as they were before JSON; the type's size is not believed."""
    if not all(isinstance(value, str | int | float) for value in values):
        raise ValueError("labels are strings or numbers")
    if np.dtype(kind).kind in "OU":
        classes = np.array(values, object if np.dtype(kind).kind == "O" else None)
    else:
        classes = np.array(values, np.dtype(kind))
    if classes.ndim != 1 or classes.dtype.kind not in "OUbiuf":
        raise ValueError(f"labels of type {kind}")
    return classes


def tensor(rows: Array) -> Tensor:
    return torch.from_numpy(np.array(rows))
