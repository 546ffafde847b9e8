"""Labels of any kind and container, what -1 and -2 mean, and every message."""

import numpy as np
import pandas as pd
import pytest

from semishot.errors import InputError
from semishot.estimator.labels import label_weights, read_labels
from support.optional_torch import HAS_TORCH

NAN = float("nan")

STRINGS = {
    "list": ["dog", -1, "cat", None, NAN, "dog", -2],
    "object array": np.array(["dog", -1, "cat", None, np.nan, "dog", -2], object),
    "NumPy's scalars": np.array(
        [np.str_("dog"), np.int64(-1), np.str_("cat"), None, np.float32("nan"), "dog", np.int8(-2)],
        object,
    ),
    "object Series with pandas' NA": pd.Series(
        ["dog", pd.NA, "cat", pd.NaT, None, "dog", -2], dtype=object
    ),
    "string Series": pd.Series(["dog", None, "cat", pd.NA, NAN, "dog", "stranger"], dtype="string"),
    "str Series": pd.Series(["dog", None, "cat", None, NAN, "dog", "stranger"]),
    "Categorical": pd.Series(["dog", None, "cat", None, NAN, "dog", "stranger"], dtype="category"),
    "str array": np.array(["dog", "", "cat", "", "", "dog", "stranger"]),
    "masked array": np.ma.array(
        ["dog", "x", "cat", "x", "x", "dog", "stranger"], mask=[0, 1, 0, 1, 1, 0, 0]
    ),
}
NUMBERS = {
    "list": [7, -1, 3, None, NAN, 7, -2],
    "float array": np.array([7, -1, 3, -1.0, np.nan, 7, -2]),
    "object array": np.array([7, -1, 3, None, np.nan, 7, -2], object),
    "float Series": pd.Series([7, -1, 3, None, NAN, 7, -2]),
    "Int64 Series": pd.Series([7, -1, 3, pd.NA, None, 7, -2], dtype="Int64"),
    "Categorical": pd.Series([7, None, 3, -1, None, 7, -2], dtype="category"),
    "integer array": np.array([7, -1, 3, -1, -1, 7, -2], np.int8),
}
if HAS_TORCH:
    import torch

    NUMBERS |= {
        "integer tensor": torch.tensor([7, -1, 3, -1, -1, 7, -2]),
        "float tensor": torch.tensor([7, -1, 3, NAN, -1, 7, -2], requires_grad=True),
        "bfloat16 tensor": torch.tensor([7, -1, 3, NAN, -1, 7, -2], dtype=torch.bfloat16),
    }


@pytest.mark.parametrize("y", STRINGS.values(), ids=STRINGS)
def test_strings_of_any_container(y):
    labels = read_labels(y)
    assert labels.classes.tolist() == ["cat", "dog"]
    assert labels.classes.dtype == np.dtype("<U3")
    assert labels.codes.tolist() == [1, -1, 0, -1, -1, 1, -2]
    assert labels.codes.dtype == np.int64
    assert labels.stranger_label == "stranger"


@pytest.mark.parametrize("y", NUMBERS.values(), ids=NUMBERS)
def test_numbers_of_any_container(y):
    labels = read_labels(y)
    assert labels.classes.tolist() == [3, 7]
    assert labels.classes.dtype.kind in "if"
    assert labels.codes.tolist() == [1, -1, 0, -1, -1, 1, -2]
    assert labels.stranger_label == -1


@pytest.mark.parametrize(
    ("y", "label", "codes", "resolved"),
    [
        (["a", "other", "stranger", -2, -1], "other", [0, -2, 1, -2, -1], "other"),
        ([0, 99, -2, -1], 99, [0, -2, -2, -1], 99),
        ([0.0, 99.0, -2, -1], 99.0, [0, -2, -2, -1], 99),
        ([0, -2, -1], -2, [0, -2, -1], -2),
        ([0, -2, -1], -1, [0, -2, -1], -1),
        (["a", "stranger", -1], "auto", [0, -2, -1], "stranger"),
        ([-2, -1], "none", [-2, -1], "none"),
    ],
)
def test_strangers_are_named_by_minus_2_and_by_their_label(y, label, codes, resolved):
    labels = read_labels(y, label)
    assert labels.codes.tolist() == codes
    assert labels.stranger_label == resolved
    assert type(labels.stranger_label) is type(resolved)


def test_rows_without_any_class_are_read_too():
    """`fit` says what is missing."""
    for y in ([-1, None], np.full(2, np.nan), np.full(2, -1)):
        labels = read_labels(y)
        assert labels.classes.shape == (0,)
        assert labels.codes.tolist() == [-1, -1]
    assert read_labels(["stranger"]).codes.tolist() == [-2]
    assert read_labels([]).codes.shape == (0,)


@pytest.mark.parametrize(
    "container", [list, tuple, np.array, lambda y: np.array(y, object), pd.Series, pd.Categorical]
)
@pytest.mark.parametrize("text", ["-1", "-2"])
def test_numbers_that_became_strings_are_refused_in_every_container(container, text):
    with pytest.raises(InputError, match=f"y holds the string '{text}'; with string labels mark"):
        read_labels(container(["cat", text, "dog"]))


@pytest.mark.parametrize(
    ("y", "line"),
    [
        (["cat", 3, -1], "y mixes strings and numbers, such as 'cat' and 3: give labels of one"),
        (np.array(["cat", "nan"]), "array of strings and holds 'nan', which was a missing label"),
        ([True, False, None], "y holds booleans, beside which -1 cannot mean unlabeled"),
        ([0, 0.5], "Unknown label type: y holds 0.5, a continuous value; classes are whole"),
        (np.array([0, np.inf]), "Unknown label type: y holds inf, a continuous value"),
        ([b"cat", b"dog"], "y holds b'cat': labels are numbers or strings"),
    ],
    ids=str,
)
def test_labels_that_are_not_are_refused_in_one_sentence(y, line):
    with pytest.raises(InputError) as refused:
        read_labels(y)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_stranger_label_is_of_the_type_of_the_classes():
    with pytest.raises(InputError, match="must be a string, as the classes are, not -1"):
        read_labels(["a", "b"], -1)
    with pytest.raises(InputError, match="must be a number, as the classes are, not 'none'"):
        read_labels([0, 1], "none")


def test_weights_belong_to_labels():
    labels = read_labels(["b", "a", None, "a", -2, -2, "b"])
    given = np.array([3, 0, 9, 1.5, 3, 0, 1.5])  # the mean of three is 2
    codes, weights = label_weights(labels, given, True)
    assert weights.tolist() == [[0, 1.5], [0, 0], [0, 0], [0.75, 0], [0, 0], [0, 0], [0, 0.75]]
    assert codes.tolist() == [1, -1, -1, 0, -2, -1, 1]
    codes, weights = label_weights(labels, None, True)
    assert (codes == labels.codes).all()
    assert (weights.sum(1) == (codes >= 0)).all()
    with pytest.raises(
        InputError, match="zero for all rows of class 'a': give one of them a weight"
    ):
        label_weights(labels, np.array([1.0, 0, 1, 0, 1, 1, 1]), True)
