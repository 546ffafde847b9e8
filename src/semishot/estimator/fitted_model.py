"""A fitted classifier: parameters, the rule that they choose, and predictions.

`PrototypeClassifier` is its scikit-learn face. Commands use it alone: scikit-learn takes seconds to load.
Letters: P rows, N classes, D features.
"""

import copy
import math
import sys
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from semishot.errors import InputError, needing_extra
from semishot.estimator import constants as const
from semishot.estimator.graph import Neighbours
from semishot.estimator.graph_rule import learn
from semishot.estimator.labels import (
    NAMED_STRANGER,
    Label,
    Labels,
    check_stranger_label,
    label_weights,
    read_labels,
)
from semishot.estimator.models import GraphModel, Learned, predict_in_blocks
from semishot.estimator.prototype_rule import learn_prototypes
from semishot.estimator.spaces import (
    NORMALIZATIONS,
    Array,
    Space,
    check_size,
    gaussian_space,
    mean_direction,
    one_thread,
)
from semishot.estimator.strangers import stranger_probability

GRAPH = "graph"


@dataclass(frozen=True)
class Parameters:
    """The parameters of PrototypeClassifier, checked."""

    refiner: Any = GRAPH
    steps: Any = "auto"
    normalize: Any = "auto"
    temperature: Any = "auto"
    reject: Any = None
    stranger_label: Any = "auto"

    def __post_init__(self) -> None:
        steps, temperature, refiner = self.steps, self.temperature, self.refiner
        if not _is_word(steps, "auto") and not (_is_number(steps, Integral) and steps >= 1):
            raise InputError(
                f"steps must be 'auto' or at least 1, not {steps!r}; refiner=None refines nothing"
            )
        if not _is_word(self.normalize, "auto", *NORMALIZATIONS):
            choices = ", ".join(("auto", *NORMALIZATIONS))
            raise InputError(f"unknown normalize {self.normalize!r}: choose from {choices}")
        automatic = temperature is None or _is_word(temperature, "auto")
        if not automatic and not (_is_number(temperature) and temperature > 0):
            raise InputError(f"temperature must be 'auto' or above 0, not {temperature!r}")
        check_reject(self.reject)
        check_stranger_label(self.stranger_label)
        torch = sys.modules.get("torch")  # whoever gives a module has imported it
        is_module = torch is not None and isinstance(refiner, torch.nn.Module)
        if not (refiner is None or isinstance(refiner, str) or is_module):
            raise InputError(f"refiner must be a name, a module or None, not {refiner!r}")


def check_reject(reject: Any) -> None:
    if reject is not None and not (_is_number(reject) and 0 < reject < 1):
        raise InputError(f"reject must be None or between 0 and 1, not {reject!r}")


def _is_word(value: Any, *words: str) -> bool:
    """Whether it is one of these strings; an array, which compares by element, is not."""
    return isinstance(value, str) and value in words


def _is_number(value: Any, kind: Any = Real) -> bool:
    """Whether it is a finite number; true and false are not."""
    return isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)


class RowAnswers(NamedTuple):
    """What is said of P rows; NaN where it is not known."""

    classes: Array  # (P, N), probabilities, given that the row belongs to one of the classes
    stranger: Array  # (P,), the probability that it belongs to none of them
    scores: Array  # (P,), the share of members that are more clearly members

    def of_rows(self, rows: list[int]) -> "RowAnswers":
        return RowAnswers(self.classes[rows], self.stranger[rows], self.scores[rows])


@dataclass(frozen=True)
class FittedModel:
    """What was learned, and with which parameters."""

    parameters: Parameters
    classes: Array  # (N,), sorted
    stranger_label: Label
    learned: Learned
    feature_names: tuple[str, ...] = ()  # none, or D

    @property
    def features(self) -> int:
        """D."""
        return len(self.learned.model.space.center)

    def check(self) -> None:
        """An error for arrays that do not fit together, or that are not one for each class or feature."""
        model = self.learned.model
        if isinstance(model, GraphModel):
            lengths = {len(each) for each in (model.rows, model.passed, model.best, model.answers)}
            if len(lengths) > 1:
                raise InputError("arrays of the graph differ in length")
        logits, _ = model(model.space.center[None])
        if logits.shape != (1, len(self.classes)):
            raise InputError(f"expected {len(self.classes)} classes, as it has names")
        if self.feature_names and len(self.feature_names) != self.features:
            raise InputError("feature_names must be none or one for each feature")

    @one_thread()
    def logits(self, features: Array) -> tuple[Array, Array]:
        """(P, D), finite -> logits (P, N) and scores (P,)."""
        check_size(features)
        logits, scores = predict_in_blocks(self.learned.model, features)
        return logits, scores.astype(np.float64)

    def predict(self, features: Array) -> RowAnswers:
        """(P, D), finite, of rows that it was not fitted to."""
        logits, scores = self.logits(features)
        return self._row_answers(softmax(logits, 1), scores)

    def fitted_rows(self, labels: Labels) -> RowAnswers:
        """What is said of the rows that it was fitted to: those that have a label keep it."""
        assert self.learned.answer is not None
        answers = self._row_answers(self.learned.answer.classes, self.learned.answer.scores)
        labeled, named = labels.labeled, labels.codes == NAMED_STRANGER
        answers.classes[labeled] = np.eye(len(self.classes))[labels.codes[labeled]]
        answers.stranger[labeled], answers.stranger[named] = 0.0, 1.0
        return answers

    def _row_answers(self, classes: Array, scores: Array) -> RowAnswers:
        members, strangers = self.learned.members, self.learned.strangers
        if members is None or strangers is None:
            return RowAnswers(classes, *np.full((2, len(scores)), np.nan))
        stranger = stranger_probability(scores, members, strangers)
        return RowAnswers(classes, stranger, members.share_above(scores))


def fit_default(features: Array, y: Array, reject: float) -> tuple[FittedModel, RowAnswers]:
    """Fit the default classifier to finite rows (P, D) and labels (P,), and predict these rows."""
    fitted, labels = fit_model(Parameters(reject=reject), features, read_labels(y))
    return fitted, fitted.fitted_rows(labels)


@one_thread()
def fit_model(
    parameters: Parameters, features: Array, labels: Labels, sample_weight: Any = None
) -> tuple[FittedModel, Labels]:
    """Fit to finite features (P, D) and P labels; also returns the labels whose weight is not 0."""
    refiner = built_refiner(parameters.refiner)
    check_size(features, fitting=True)
    if not labels.labeled.any():
        raise InputError("fit needs labeled examples: y holds no class, only -1 or strangers")
    labels, weights = label_weights(labels, sample_weight)  # (P, N)
    named, normalize = labels.codes == NAMED_STRANGER, parameters.normalize
    steps, temperature = parameters.steps, parameters.temperature
    if steps == "auto":
        steps = const.GRAPH_STEPS if refiner == GRAPH else 1
    temperature = None if temperature in (None, "auto") else float(temperature)
    if normalize == "auto":
        normalize = "centered" if features.shape[1] >= const.MANY_FEATURES else "none"
    plain = Space(normalize, mean_direction(features))
    if refiner == GRAPH:
        space = gaussian_space(features) if normalize == "none" else plain
        learned = learn(Neighbours(features, space), weights, named, int(steps), temperature)
    else:
        learned = learn_prototypes(
            features, weights, named, refiner, int(steps), plain, temperature
        )
    return FittedModel(parameters, labels.classes, labels.stranger_label, learned), labels


def built_refiner(refiner: Any) -> Any:
    """The method of a name, a copy of a module, None, or "graph"."""
    if not isinstance(refiner, str):
        return copy.deepcopy(refiner)
    if refiner in (GRAPH, "supervised", "basic"):
        return GRAPH if refiner == GRAPH else None
    with needing_extra(f"refiner={refiner!r}"):
        from semishot import refine
    try:
        built = refine.build(refiner).eval()
    except InputError as error:
        text = str(error).replace("choose from ", f"choose from {GRAPH}, ", 1)
        raise InputError(text) from error
    if any(True for _ in built.parameters()):
        raise InputError(
            f"{refiner!r} has learned parameters, which a name does not bring: give the trained module, "
            "or 'graph' or 'fitted_mask', which need no training"
        )
    return built
