"""Labels of any kind: which rows have a class, which have none, and which are named strangers.

Letters: P examples, N classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.errors import InputError
from semishot.estimator.spaces import as_array

UNLABELED = -1
NAMED_STRANGER = -2
RESERVED = {
    "-1": "unlabeled rows by '', None or the number -1",
    "-2": "strangers by the stranger_label or the number -2",
}
"""As strings they are refused: they were numbers once. How such rows are marked instead."""
MISSING_AS_TEXT = {"nan", "None", "<NA>"}
"""What NumPy makes of missing labels when it turns them into strings."""
Label = str | int | float


@dataclass(frozen=True)
class Labels:
    """The labels of P examples. The class of row i is `classes[codes[i]]`, if `codes[i]` is not negative."""

    classes: NDArray[Any]  # (N,), sorted, strings or numbers of their own type
    codes: NDArray[np.int64]  # (P,): 0 to N-1, -1 for unlabeled, -2 for a named stranger
    stranger_label: Label  # what predictions say of a stranger, of the same type as the classes

    @property
    def labeled(self) -> NDArray[np.bool_]:
        """(P,): the rows that have a class."""
        return self.codes >= 0


def read_labels(y: Any, stranger_label: Label = "auto") -> Labels:
    """Labels from a list, tuple, array, tensor or Series of P numbers or strings.

    -1, None, NaN, pandas' NA and the empty string mean unlabeled. -2 names a stranger: a row that belongs
    to none of the classes; so does the value of `stranger_label`, unless it is -1. `"auto"` is -1 for
    numbers and `"stranger"` for strings: then no class can be called "stranger".
    """
    check_stranger_label(stranger_label)
    values = _one_dimensional(y)
    distinct: dict[tuple[type, Any], int] = {}  # by type too: True equals 1
    try:
        rows = [distinct.setdefault((type(row), row), len(distinct)) for row in values.tolist()]
    except TypeError as error:  # it has no hash
        raise InputError(f"y holds values that are not numbers or strings: {error}") from error
    known = [_checked(value, values.dtype.kind == "U") for _, value in distinct]
    names = [value for value in known if isinstance(value, str)]
    numbers = [value for value in known if isinstance(value, int | float)]
    others = [value for value in numbers if value not in (UNLABELED, NAMED_STRANGER)]
    if names and others:
        raise InputError(
            f"y mixes strings and numbers, such as {names[0]!r} and {others[0]!r}: give labels of one "
            "kind (-1, None and NaN mean unlabeled beside both)"
        )
    if stranger_label == "auto":
        stranger_label = "stranger" if names else UNLABELED
    elif (names or others) and isinstance(stranger_label, str) != bool(names):
        kind = "a string" if names else "a number"
        raise InputError(
            f"stranger_label must be {kind}, as the classes are, not {stranger_label!r}"
        )
    elif not isinstance(stranger_label, str):
        stranger_label = int(stranger_label)
    special: dict[Any, int] = {stranger_label: NAMED_STRANGER, NAMED_STRANGER: NAMED_STRANGER}
    special |= {UNLABELED: UNLABELED, None: UNLABELED}  # also where the label is -1
    classes = sorted({value for value in names + others if value not in special})
    codes = {**{value: code for code, value in enumerate(classes)}, **special}
    meaning = np.array([codes[value] for value in known], np.int64)
    dtype = str if names else values.dtype if values.dtype.kind in "biuf" else None
    return Labels(
        np.array(classes, dtype if classes or names else int), meaning[rows], stranger_label
    )


def rejected(
    predicted: NDArray[Any], strangers: NDArray[np.bool_], stranger_label: Label
) -> NDArray[Any]:
    """(P,), (P,) -> (P,): the predicted classes, and the label of strangers where they are rejected.

    The result is of a type that holds both, never of objects.
    """
    dtype = np.result_type(predicted.dtype, np.min_scalar_type(stranger_label))
    result = predicted.astype(dtype)
    result[strangers] = stranger_label
    return result


def agreement(
    predicted: NDArray[Any], labels: Labels, classes: NDArray[Any], stranger_label: Label
) -> NDArray[np.bool_]:
    """(P,) predictions of a classifier with these classes -> (P,): which agree with the labels.

    No label may be missing. A named stranger agrees with the label of strangers.
    """
    if labels.labeled.any() and (labels.classes.dtype.kind == "U") != (classes.dtype.kind == "U"):
        kind = "strings" if classes.dtype.kind == "U" else "numbers"
        given, known = labels.classes[:1].tolist() + classes[:1].tolist()
        raise InputError(f"y holds {given!r}, and the classes are {kind} such as {known!r}")
    names = np.array([*labels.classes.tolist(), stranger_label], object)
    agree: NDArray[np.bool_] = predicted.astype(object) == names[np.maximum(labels.codes, -1)]
    return agree


def label_weights(
    labels: Labels, sample_weight: Any = None, needed: bool = True
) -> tuple[Labels, NDArray[np.float64]]:
    """(P,) weights, one number, or None for 1 -> (P, N), the weight of each row's label; zeros without one.

    Weights are scaled to a mean of 1. A label of weight 0 is not used: in the labels returned, its row is
    unlabeled. Weights of unlabeled rows are ignored, those of named strangers as far as they are not 0. Each
    class needs a label, unless it has a name.
    """
    rows = len(labels.codes)
    weights = checked_weights(sample_weight, rows)
    codes = np.where(weights > 0, labels.codes, UNLABELED)
    labeled = np.flatnonzero(codes >= 0)
    unused = np.setdiff1d(np.arange(len(labels.classes)), codes)
    if len(unused) and needed:
        raise InputError(
            f"sample_weight is zero for all rows of class {labels.classes[unused[0]].item()!r}: give one "
            "of them a weight, or leave the class out of y"
        )
    by_class = np.zeros((rows, len(labels.classes)))
    if len(labeled):
        by_class[labeled, codes[labeled]] = weights[labeled] / weights[labeled].mean()
    return replace(labels, codes=codes), by_class


def named_classes(
    labels: Labels, class_features: Any, features: int
) -> tuple[Labels, NDArray[Any] | None]:
    """Labels with the classes that only have a name, and the names' features (N, D), NaN for none."""
    if class_features is None:
        return labels, None
    if not isinstance(class_features, Mapping):
        names = np.asarray(class_features, np.float64)
        if names.shape != (len(labels.classes), features):
            raise InputError(
                f"class_features must be a dictionary, or of shape {(len(labels.classes), features)}: a row "
                f"for each class of y, not {names.shape}"
            )
        return labels, names
    stranger_label = labels.stranger_label if len(labels.classes) else "auto"  # y shows no kind
    own = read_labels([*labels.classes.tolist(), *class_features], stranger_label)
    place = np.searchsorted(own.classes, labels.classes)
    codes = np.where(
        labels.labeled, place[np.maximum(labels.codes, 0)] if len(place) else 0, labels.codes
    )
    names = np.full((len(own.classes), features), np.nan)
    for code, vector in zip(own.codes[len(labels.classes) :], class_features.values(), strict=True):
        row = np.asarray(as_array(vector), np.float64)
        if code < 0 or row.shape != (features,) or not np.isfinite(row).all():
            raise InputError(
                f"class_features must hold classes and {features} finite numbers for each"
            )
        names[code] = row
    return replace(own, codes=codes), names


def check_stranger_label(label: Any) -> None:
    """An error unless it is "auto" or can be a label."""
    if isinstance(label, str):
        valid = label not in RESERVED and label != ""
    else:
        valid = isinstance(label, Real) and float(label).is_integer() and abs(float(label)) < 2**63
    if not valid or type(label) is bool:
        raise InputError(
            f"stranger_label must be 'auto', a string other than '', '-1' and '-2', or a whole number, "
            f"not {label!r:.40}"
        )


def checked_weights(sample_weight: Any, rows: int) -> NDArray[np.float64]:
    """(P,), finite and not negative."""
    sample_weight = 1.0 if sample_weight is None else sample_weight
    try:
        weights = np.asarray(as_array(sample_weight), np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight must be numbers: {error}") from error
    weights = np.full(rows, weights) if weights.ndim == 0 else weights
    if weights.shape != (rows,):
        raise InputError(
            f"sample_weight must have one number for each of {rows} rows, not shape {weights.shape}"
        )
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise InputError("sample_weight must be finite and at least 0")
    return weights


def _one_dimensional(y: Any) -> NDArray[Any]:
    """(P,): of objects where the values are mixed or the container is not NumPy's."""
    y = as_array(y)
    own_type = hasattr(y, "tolist") and not isinstance(getattr(y, "dtype", None), np.dtype | None)
    if isinstance(y, list | tuple):
        y = np.array(y, object)  # not strings, which -1 beside strings would become
    elif isinstance(y, np.ma.MaskedArray) or own_type:  # categories, Int64: not NumPy's
        y = np.array(y.tolist(), object)  # None for what is masked
    values: NDArray[Any] = np.asarray(y)
    if values.ndim != 1:  # a column is taken with a warning, anything else refused
        from sklearn.utils.validation import column_or_1d

        values = column_or_1d(values, warn=True)
    if values.dtype.kind not in "biufUTO":
        raise InputError(f"y holds {values.dtype} values: labels are numbers or strings")
    return values


def _checked(value: Any, from_text: bool) -> Label | None:
    """A number or a string, as Python's. None: missing, as NaN, pandas' NA and the empty string are."""
    if isinstance(value, np.generic) or hasattr(value, "detach"):
        value = value.item()
    missing = value is None or type(value).__name__ in ("NAType", "NaTType") or value == ""
    if missing or (isinstance(value, Real) and value != value):
        return None
    if isinstance(value, bool):
        raise InputError(
            "y holds booleans, beside which -1 cannot mean unlabeled: give 0 and 1, or two names"
        )
    if isinstance(value, str):
        if value in RESERVED:
            raise InputError(
                f"y holds the string {value!r}; with string labels mark {RESERVED[value]}, which stays "
                "a number in a list and in an object array"
            )
        if from_text and value in MISSING_AS_TEXT:
            raise InputError(
                f"y is an array of strings and holds {value!r}, which was a missing label before it became "
                "a string; mark unlabeled rows by ''"
            )
        return str(value)
    if isinstance(value, Integral):
        if abs(int(value)) >= 2**63:
            raise InputError(f"y holds {value}, which is too large for a label")
        return int(value)
    if not isinstance(value, Real):
        raise InputError(f"y holds {value!r:.40}: labels are numbers or strings")
    if not float(value).is_integer():
        raise InputError(
            f"Unknown label type: y holds {float(value)!r}, a continuous value; classes are whole numbers or "
            "strings"
        )
    return float(value)
