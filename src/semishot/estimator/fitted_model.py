"""A fitted classifier: parameters, what they taught the rule, predictions, and its file.

`PrototypeClassifier` is its scikit-learn face. Commands use it alone: scikit-learn takes seconds to load.
Letters: P rows, N classes, D features.
"""

import copy
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from semishot.errors import InputError, needing_extra, reason_of
from semishot.estimator.answers import Answer
from semishot.estimator.labels import (
    NAMED_STRANGER,
    NUMBER,
    UNLABELED,
    Label,
    Labels,
    label_weights,
    named_classes,
    read_labels,
)
from semishot.estimator.pile import LabeledPile, Learned
from semishot.estimator.prototype_rule import refined_model
from semishot.estimator.rule import rule_digest
from semishot.estimator.spaces import NORMALIZATIONS, Array, check_size, one_thread
from semishot.system.tensor_files import read_arrays, write_arrays

LEARNED = "learned"
"""The default instead of a refiner: the learned rule."""
CERTAIN = 50.0
"""The log-odds of what the user said."""
FORMAT, RULE = "semishot.PrototypeClassifier", "semishot.rule"
"""Keys in the metadata of a saved classifier: all but its arrays, as JSON; which rule it was fitted by."""


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
        steps, temperature, reject = self.steps, self.temperature, self.reject
        if not (isinstance(steps, NUMBER[:2]) and steps >= 1):
            raise InputError(
                f"steps must be at least 1, not {steps!r}; refiner=None refines nothing"
            )
        if self.normalize not in (choices := ("auto", *NORMALIZATIONS)):
            raise InputError(
                f"unknown normalize {self.normalize!r}: choose from {', '.join(choices)}"
            )
        if temperature != "auto" and not (isinstance(temperature, NUMBER) and temperature > 0):
            raise InputError(f"temperature must be 'auto' or above 0, not {temperature!r}")
        if reject not in (None, "auto") and not (isinstance(reject, NUMBER) and 0 < reject < 1):
            raise InputError(f"reject must be None, 'auto' or between 0 and 1, not {reject!r}")
        torch = sys.modules.get("torch")  # whoever gives a module has imported it
        is_module = torch is not None and isinstance(self.refiner, torch.nn.Module)
        if not (is_module or isinstance(self.refiner, str | None)):
            raise InputError(f"refiner must be a name, a module or None, not {self.refiner!r}")


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

    @one_thread()
    def predict(self, features: Any) -> Answer:
        """(P, D), finite, of rows that it was not fitted to."""
        check_size(features)
        return self.learned.model(features)

    def strangers(self, answer: Answer) -> Array:
        """(P,), which rows are taken for strangers: none without `reject`."""
        if self.parameters.reject is None:
            return np.zeros(len(answer.log_odds), bool)
        return answer.strangers(self.cutoff)


def fit_default(
    features: Any, y: Array, reject: float | str, names: Mapping[Any, Any] | None = None
) -> tuple[FittedModel, Answer]:
    """Fit the default classifier to finite rows (P, D) and labels (P,), and predict these rows.

    Labeled rows count as rows of the pile, as on the page of `label`, where images become labeled one by one.
    """
    parameters, labels = Parameters(reject=reject), read_labels(y)
    return fit_model(parameters, features, labels, names=names, all_rows=True)[:2]


@one_thread()
def fit_model(
    parameters: Parameters,
    features: Any,
    labels: Labels,
    sample_weight: Array | None = None,
    names: Mapping[Any, Any] | None = None,
    all_rows: bool = False,
) -> tuple[FittedModel, Answer, Array]:
    """Fit to finite features (P, D), P labels and features of the classes' names.

    all_rows: directions are seen from the mean of all rows, not only of those without a label.

    Also returns what is said of these rows, of which those with a label keep it, and the codes (P,) of the
    labels whose weight is not 0.
    """
    labels, vectors = named_classes(labels, names, features.shape[1])
    refiner = built_refiner(parameters.refiner)
    check_size(features)
    if not len(labels.classes):
        raise InputError("fit needs labeled examples: y holds no class, only -1 or strangers")
    codes, weights = label_weights(labels, sample_weight, vectors is None)  # (P,), (P, N)
    pile = codes == UNLABELED
    used = np.full(len(codes), refiner is not None) | ~pile  # (P,)
    rows = features if used.all() else features[used]
    beside = LabeledPile(rows, parameters.normalize, None if all_rows else pile[used])
    learned, answer = beside.learn(codes[used], weights[used], vectors)
    if not isinstance(refiner, str):
        given = (features, weights, pile, learned.rule)
        model, held_out = refined_model(parameters, refiner, *given)
        answer = model(features)
        used = refiner is not None and pile.any()
        learned = replace(
            learned,
            model=model,
            pile=np.sort(answer.log_odds[pile]),
            message=f"prototypes {'refined with the pile' if used else 'of the labels alone'}",
            held_out=held_out,
        )
    classes, log_odds = (each.copy() for each in answer)
    labeled = codes >= 0
    classes[labeled] = np.eye(len(labels.classes))[codes[labeled]]
    log_odds[labeled], log_odds[codes == NAMED_STRANGER] = -CERTAIN, CERTAIN
    fitted = FittedModel(parameters, labels.classes, labels.stranger_label, learned)
    return fitted, Answer(classes, log_odds), codes


def built_refiner(refiner: Any) -> Any:
    """The method of a name, a copy of a module, None, or "learned"."""
    if not isinstance(refiner, str):
        return copy.deepcopy(refiner)
    if refiner in (LEARNED, "supervised", "basic"):
        return LEARNED if refiner == LEARNED else None
    with needing_extra(f"refiner={refiner!r}"):
        from semishot import refine
    built = refine.build(refiner).eval()
    if any(True for _ in built.parameters()):
        raise InputError(
            f"{refiner!r} has learned parameters, which a name does not bring: give the trained module, "
            f"or '{LEARNED}' or 'fitted_mask', which need no training"
        )
    return built


def write_model(path: Path, fitted: FittedModel) -> None:
    """Write everything that prediction needs but the learned rule, which comes with the package."""
    if not isinstance(fitted.parameters.refiner, str | None):
        raise InputError("a refiner is saved by its name; this one is a module")
    arrays: dict[str, Array] = {}

    def plain(value: Any) -> Any:
        """A NumPy number as Python's; the classes as a list; the name of any other array."""
        if not isinstance(value, np.ndarray):
            return value.item()
        if value is fitted.classes:
            return [value.dtype.str, *value.tolist()]
        name = f"array {len(arrays)}"
        arrays[name] = value
        return name

    saved = replace(fitted, learned=replace(fitted.learned, doubts=[]))
    text = json.dumps(msgspec.to_builtins(saved, enc_hook=plain))  # may hold lone surrogates
    write_arrays(path, arrays, {FORMAT: text, RULE: rule_digest()})


def read_model(path: Path) -> FittedModel:
    """Read a file of `write_model`; InputError for the first field that is wrong."""
    try:
        arrays, metadata = read_arrays(path)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    where = f"{path} was not written by PrototypeClassifier.save"
    if FORMAT not in metadata:
        raise InputError(f"{where}: {FORMAT} is missing")
    if metadata.get(RULE) != rule_digest():
        raise InputError(f"{path} was saved by another version of semishot: fit and save again")

    def array_of(_: type, value: Any) -> Array:
        if isinstance(value, list):
            dtype = np.dtype(value[0])  # the size of strings is not trusted
            return np.array(value[1:], dtype if dtype.kind in "iuf" else None)
        array = arrays[value]
        if array.dtype.char not in "fd" or not np.isfinite(array).all():
            raise ValueError("expected finite float32 or float64 numbers")
        return array

    try:
        value = json.loads(metadata[FORMAT], parse_constant=str)  # NaN is not a number here
        fitted = msgspec.convert(value, FittedModel, dec_hook=array_of)
        found = fitted.predict(np.zeros((1, fitted.features), np.float32)).classes.shape[1]
        if found != len(fitted.classes):
            raise ValueError(f"expected {found} classes, not {len(fitted.classes)}")
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{where}: {reason_of(error)}") from error
    return fitted
