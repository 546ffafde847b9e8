"""docs/encoders.md is made from results/encoders.json, and the benchmark behind it measures what it says."""

import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def test_the_page_is_made_from_the_results(benchmarks):
    from encoders_page import PAGE, RESULT, fill

    text, result = PAGE.read_text(encoding="utf-8"), json.loads(RESULT.read_text(encoding="utf-8"))
    assert fill(text, result) == text
    names = [row["encoder"] for row in result["speed"]]
    assert {row["encoder"] for half in ("choose", "report") for row in result[half]} == set(names)


def test_the_default_is_what_the_rule_chooses(benchmarks):
    """At most twice the time of Lite0, most sorted right, by a point and two standard errors."""
    from encoders_page import RESULT
    from semishot.sorter.encoders.packaged import BEST_PHOTOS

    result = json.loads(RESULT.read_text(encoding="utf-8"))
    allowed = [row["encoder"] for row in result["speed"] if row["relative"] >= 0.5]
    gains = {
        name: np.mean([r["sorted_gain"] for r in result["choose"] if r["encoder"] == name])
        for name in allowed
    }
    best = max(gains, key=gains.get)
    errors = [r["sorted_gain_se"] for r in result["choose"] if r["encoder"] == best]
    assert gains[best] > max(0.01, 2 * np.sqrt(np.square(errors).sum()) / len(errors))
    assert (best, BEST_PHOTOS) == ("Lite2, 260", "photos-lite2")


def test_figures_of_a_task_count_members_and_strangers(benchmarks):
    from encoders import compared, judged
    from tasks import Cell, draw

    rng = np.random.default_rng(0)
    centers = 4 * rng.normal(size=(20, 1, 40))
    classes = (centers + rng.normal(size=(20, 30, 40))).astype(np.float32)
    found = judged(draw(classes, Cell(5, 3, 200, 0.5, 0), 0))
    assert found["accuracy"] == 1
    assert found["auroc"] > 0.99
    assert found["sorted"] == pytest.approx((1 - found["lost"] + found["found"]) / 2)
    rows = compared({"a": classes, "b": classes}, 1)
    assert [row["shot"] for row in rows] == [1, 1, 3, 3, 5, 5]
    assert all(row["sorted_gain"] == row["sorted_gain_se"] == 0 for row in rows)
