"""Labels of any kind: which rows have a class, which have none, and which are named strangers.

Letters: P examples, N classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
NUMBER = (int, np.integer, float, np.floating)


@dataclass(frozen=True)
class Labels:
    """The labels of P examples. The class of row i is `classes[codes[i]]`, if `codes[i]` is not negative."""

    classes: NDArray[Any]  # (N,), sorted, strings or numbers of their own type
    codes: NDArray[np.int64]  # (P,): 0 to N-1, -1 for unlabeled, -2 for a named stranger
    stranger_label: Label  # what predictions say of a stranger, of the same type as the classes


def read_labels(y: Any, stranger_label: Any = "auto") -> Labels:
    """Labels from a list, tuple, array, tensor or Series of P numbers or strings.

    -1, None, NaN, pandas' NA and the empty string mean unlabeled. -2 names a stranger: a row that belongs
    to none of the classes; so does the value of `stranger_label`, unless it is -1. `"auto"` is -1 for
    numbers and `"stranger"` for strings: then no class can be called "stranger".
    """
    text = isinstance(stranger_label, str) and stranger_label not in ("", *RESERVED)
    if not text and not (isinstance(stranger_label, NUMBER) and stranger_label % 1 == 0):
        raise InputError(
            f"stranger_label must be 'auto', a string other than '', '-1' and '-2', or a whole number, "
            f"not {stranger_label!r:.40}"
        )
    values = _one_dimensional(y)
    distinct: dict[tuple[type, Any], int] = {}  # by type too: True equals 1
    rows = [distinct.setdefault((type(row), row), len(distinct)) for row in values.tolist()]
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


def label_weights(
    labels: Labels, weights: NDArray[np.float64] | None, needed: bool
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(P,), or None for 1 -> the codes of labels with a weight (P,), and the weight of each label (P, N).

    A label of weight 0 is not used: its row is unlabeled. Weights of labels are scaled to a mean of 1; others
    are ignored. A class needs a label, unless all are not `needed` because classes have names.
    """
    codes, weights = labels.codes, np.ones(len(labels.codes)) if weights is None else weights
    codes = np.where(weights > 0, codes, UNLABELED)
    labeled = np.flatnonzero(codes >= 0)
    unused = np.setdiff1d(np.arange(len(labels.classes)), codes)
    if len(unused) and needed:
        raise InputError(
            f"sample_weight is zero for all rows of class {labels.classes[unused[0]].item()!r}: give one "
            "of them a weight, or leave the class out of y"
        )
    by_class = np.zeros((len(codes), len(labels.classes)))
    if len(labeled):
        by_class[labeled, codes[labeled]] = weights[labeled] / weights[labeled].mean()
    return codes, by_class


def named_classes(
    labels: Labels, names: Mapping[Any, Any] | None, features: int
) -> tuple[Labels, NDArray[np.float64] | None]:
    """Labels with the classes that only have a name, and the names' features (N, D), NaN for none."""
    if not names:
        return labels, None
    stranger_label = labels.stranger_label if len(labels.classes) else "auto"  # y shows no kind
    own = read_labels([*labels.classes.tolist(), *names], stranger_label)
    known = len(labels.classes)
    code_of = np.array([*own.codes[:known], NAMED_STRANGER, UNLABELED])  # by negative index
    vectors = np.full((len(own.classes), features), np.nan)
    for code, vector in zip(own.codes[known:], names.values(), strict=True):
        row = np.asarray(as_array(vector), np.float64)
        if code < 0 or row.shape != (features,) or not np.isfinite(row).all():
            raise InputError(
                f"class_features must hold classes and {features} finite numbers for each"
            )
        vectors[code] = row
    return replace(own, codes=code_of[labels.codes]), vectors


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
    return values


def _checked(value: Any, from_text: bool) -> Label | None:
    """A number or a string, as Python's. None: missing, as NaN, pandas' NA and the empty string are."""
    value = value.item() if hasattr(value, "item") else value  # NumPy's or a tensor's
    missing = value is None or type(value).__name__ in ("NAType", "NaTType") or value == ""
    if missing or value != value:
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
        return value
    if not isinstance(value, int | float):
        raise InputError(f"y holds {value!r:.40}: labels are numbers or strings")
    if value % 1:
        raise InputError(
            f"Unknown label type: y holds {value!r}, a continuous value; classes are whole numbers or strings"
        )
    return value
