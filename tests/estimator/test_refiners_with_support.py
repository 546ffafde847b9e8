"""Refiners that see the labeled examples, by name in the estimator."""

import numpy as np
import pytest

from semishot import PrototypeClassifier
from semishot.errors import InputError


def pile(seed: int, labels: int):
    """Three classes and a kind of strangers in 40 dimensions: features, y, and the truth (-1: stranger)."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(4, 40))
    kinds = np.repeat([0, 1, 2, 3], 30)
    x = centers[kinds] + 1.2 * rng.normal(size=(len(kinds), 40)) + 3.0
    truth = np.where(kinds < 3, kinds, -1)
    y = np.full(len(kinds), -1)
    for c in range(3):
        y[np.flatnonzero(kinds == c)[:labels]] = c
    return x, y, truth


@pytest.mark.parametrize("name", ["oslo", "label_propagation"])
@pytest.mark.parametrize("labels", [1, 4])
def test_they_are_named_like_any_other_and_the_pile_helps(name, labels):
    right = {None: [], name: []}
    for seed in range(5):
        x, y, truth = pile(seed, labels)
        asked = (y < 0) & (truth >= 0)
        for refiner, found in right.items():
            classifier = PrototypeClassifier(refiner).fit(x, y)
            found.append((classifier.predict(x[asked]) == truth[asked]).mean())
    assert np.mean(right[name]) > 0.9
    assert np.mean(right[name]) > np.mean(right[None]) - 0.005
    if labels == 1:
        assert np.mean(right[name]) > np.mean(right[None]) + 0.02


@pytest.mark.parametrize("name", ["oslo", "label_propagation"])
def test_order_of_rows_is_irrelevant_and_the_model_is_saved(name, tmp_path):
    x, y, _ = pile(7, 1)  # one label per class: nothing is held out, so no fold follows the order
    order = np.random.default_rng(0).permutation(len(x))
    first = PrototypeClassifier(name).fit(x, y)
    shuffled = PrototypeClassifier(name).fit(x[order], y[order])
    assert np.allclose(first.prototypes_, shuffled.prototypes_)
    first.save(tmp_path / "a.safetensors")
    again = PrototypeClassifier.load(tmp_path / "a.safetensors")
    assert again.refiner == name
    assert np.array_equal(again.predict(x), first.predict(x))


def test_a_name_outside_the_package_is_not_imported_by_the_estimator():
    x, y, _ = pile(0, 1)
    with pytest.raises(InputError, match="'antigravity:Refiner' is not part of semishot"):
        PrototypeClassifier("antigravity:Refiner").fit(x, y)
