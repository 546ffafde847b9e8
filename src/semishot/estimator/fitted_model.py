"""A fitted classifier: parameters, what they taught the rule, and predictions.

`PrototypeClassifier` is its scikit-learn face. Commands use it alone: scikit-learn takes seconds to load.
Letters: P rows, N classes, D features.
"""

import copy
import math
import sys
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from semishot.errors import InputError, needing_extra
from semishot.estimator.answers import Answer, count_strangers
from semishot.estimator.labels import (
    NAMED_STRANGER,
    UNLABELED,
    Label,
    Labels,
    check_stranger_label,
    label_weights,
    named_classes,
    read_labels,
)
from semishot.estimator.models import Learned, RuleModel
from semishot.estimator.pile import LabeledPile
from semishot.estimator.prototype_rule import learn_prototypes
from semishot.estimator.spaces import (
    NORMALIZATIONS,
    Array,
    Normalized,
    blocks,
    check_size,
    mean_direction,
    one_thread,
)

LEARNED = "learned"
"""The default instead of a refiner: the learned rule."""
MANY_FEATURES = 32
"""From here on a refiner compares directions."""
CERTAIN = 50.0
"""The log-odds of what the user said."""


@dataclass(frozen=True)
class Parameters:
    """The parameters of PrototypeClassifier, checked."""

    refiner: Any = LEARNED
    steps: Any = 1
    normalize: Any = "auto"
    temperature: Any = "auto"
    reject: Any = None
    stranger_label: Any = "auto"

    def __post_init__(self) -> None:
        steps, temperature, refiner = self.steps, self.temperature, self.refiner
        if not (_is_number(steps, Integral) and steps >= 1):
            raise InputError(
                f"steps must be at least 1, not {steps!r}; refiner=None refines nothing"
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
    if not (reject is None or _is_word(reject, "auto")) and not (
        _is_number(reject) and 0 < reject < 1
    ):
        raise InputError(f"reject must be None, 'auto' or between 0 and 1, not {reject!r}")


def _is_word(value: Any, *words: str) -> bool:
    """Whether it is one of these strings; an array, which compares by element, is not."""
    return isinstance(value, str) and value in words


def _is_number(value: Any, kind: Any = Real) -> bool:
    """Whether it is a finite number; true and false are not."""
    return isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)


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

    @property
    def cutoff(self) -> float | None:
        """The probability of a stranger above which rows are put out; None: where that is most probable."""
        return self.learned.cutoff(self.parameters.reject)

    def check(self) -> None:
        """An error for arrays that do not fit together, or that are not one for each class or feature."""
        model = self.learned.model
        near = (model if isinstance(model, RuleModel) else model.rule).reference
        sides = (near.degrees, near.arrived, near.weights, near.around)
        if any(each.ndim < 2 or each.shape[1] != len(near.rows) for each in sides):
            raise InputError("arrays of the graph differ in length")
        answer = model(np.zeros((1, self.features), model.space.center.dtype))
        if answer.classes.shape != (1, len(self.classes)):
            raise InputError(f"expected {len(self.classes)} classes, as it has names")
        if self.feature_names and len(self.feature_names) != self.features:
            raise InputError("feature_names must be none or one for each feature")

    @one_thread()
    def predict(self, features: Any) -> Answer:
        """(P, D), finite, of rows that it was not fitted to."""
        check_size(features)
        dtype = self.learned.model.space.center.dtype
        parts = [
            self.learned.model(block.astype(dtype, copy=False)) for _, block in blocks(features)
        ]
        none = Answer(np.empty((0, len(self.classes))), np.empty(0))
        return Answer(*(np.concatenate(each) for each in zip(none, *parts, strict=True)))

    def fitted_rows(self, labels: Labels) -> Answer:
        """What is said of the rows that it was fitted to: those that have a label keep it."""
        assert self.learned.answer is not None
        classes, log_odds = (each.copy() for each in self.learned.answer)
        labeled, named = labels.labeled, labels.codes == NAMED_STRANGER
        classes[labeled] = np.eye(len(self.classes))[labels.codes[labeled]]
        log_odds[labeled], log_odds[named] = -CERTAIN, CERTAIN
        return Answer(classes, log_odds)

    def strangers(self, answer: Answer) -> Array:
        """(P,), which rows are taken for strangers: none without `reject`."""
        if self.parameters.reject is None:
            return np.zeros(len(answer.log_odds), bool)
        return answer.strangers(self.cutoff)


def fit_default(
    features: Any, y: Array, reject: float | str, class_features: Any = None
) -> tuple[FittedModel, Answer]:
    """Fit the default classifier to finite rows (P, D) and labels (P,), and predict these rows."""
    labels, names = named_classes(read_labels(y), class_features or None, features.shape[1])
    fitted, labels = fit_model(Parameters(reject=reject), features, labels, names=names)
    return fitted, fitted.fitted_rows(labels)


@one_thread()
def fit_model(
    parameters: Parameters,
    features: Any,
    labels: Labels,
    sample_weight: Any = None,
    names: Array | None = None,
) -> tuple[FittedModel, Labels]:
    """Fit to finite features (P, D), P labels and features of the classes' names (N, D), NaN for none; also
    returns the labels whose weight is not 0."""
    refiner = built_refiner(parameters.refiner)
    check_size(features, fitting=True)
    if not labels.labeled.any() and names is None:
        raise InputError("fit needs labeled examples: y holds no class, only -1 or strangers")
    labels, weights = label_weights(labels, sample_weight, names is None)  # (P, N)
    codes, pile = labels.codes, labels.codes == UNLABELED
    used = np.ones(len(codes), bool) if refiner is not None else ~pile  # (P,)
    rows = features if used.all() else features[used]
    beside = LabeledPile(rows, parameters.normalize, pile[used])
    learned = beside.learn(codes[used], weights[used], names)
    if not isinstance(refiner, str):
        learned = _with_prototypes(parameters, features, weights, pile, refiner, learned)
    return FittedModel(parameters, labels.classes, labels.stranger_label, learned), labels


def _with_prototypes(
    parameters: Parameters,
    features: Any,
    weights: Array,
    pile: Array,
    refiner: Any,
    learned: Learned,
) -> Learned:
    """Classes by prototypes that a refiner refines; without one, the labels alone are used for all."""
    normalize, temperature = parameters.normalize, parameters.temperature
    if normalize == "auto":
        normalize = "centered" if features.shape[1] >= MANY_FEATURES else "none"
    space = Normalized(normalize, mean_direction(features))
    temperature = None if temperature in (None, "auto") else float(temperature)
    assert isinstance(learned.model, RuleModel)
    if refiner is None:  # what was learned from the labels alone is asked about all rows
        parts = [learned.model(block) for _, block in blocks(features)]
        answer = Answer(*(np.concatenate(each) for each in zip(*parts, strict=True)))
        of_pile = answer.take(pile)
        learned = replace(
            learned,
            answer=answer,
            count=count_strangers(of_pile.log_odds, learned.model.shared.doubt),
            pile_strangers=np.sort(of_pile.stranger),
        )
    steps = int(parameters.steps)
    return learn_prototypes(features, weights, pile, refiner, steps, space, temperature, learned)


def built_refiner(refiner: Any) -> Any:
    """The method of a name, a copy of a module, None, or "learned"."""
    if not isinstance(refiner, str):
        return copy.deepcopy(refiner)
    if refiner in (LEARNED, "supervised", "basic"):
        return LEARNED if refiner == LEARNED else None
    with needing_extra(f"refiner={refiner!r}"):
        from semishot import refine
    try:
        built = refine.build(refiner).eval()
    except InputError as error:
        text = str(error).replace("choose from ", f"choose from {LEARNED}, ", 1)
        raise InputError(text) from error
    if any(True for _ in built.parameters()):
        raise InputError(
            f"{refiner!r} has learned parameters, which a name does not bring: give the trained module, "
            f"or '{LEARNED}' or 'fitted_mask', which need no training"
        )
    return built
