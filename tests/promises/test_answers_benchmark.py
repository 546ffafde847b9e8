"""benchmarks/answers.py: the user it plays, and the page made of stored results."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def answers(benchmarks):
    return import_module("answers")


def task(answers, far: float):
    """Three classes of 12 with a label each, and 15 strangers of one kind."""
    rng = np.random.default_rng(0)
    truth = np.array([0, 1, 2, *np.repeat([0, 1, 2], 12), *[-1] * 15])
    centers = far * rng.normal(size=(4, 40))
    features = (centers[truth] + 3 * rng.normal(size=(len(truth), 40))).astype(np.float32)
    labels = np.where(np.arange(len(truth)) < 3, truth, -1)
    new = np.zeros(len(truth), bool)
    return answers.Task(features, labels, truth, new, answers.Shape(3, 1, 51, 0.3))


@pytest.mark.parametrize("start", ["one label per class", "no label"])
@pytest.mark.parametrize("rule", ["ours", "entropy", "margin", "margin + stranger", "random"])
def test_a_played_task_ends_with_98_percent_right(answers, rule, start, monkeypatch):
    monkeypatch.setattr(answers, "FIRST", 9)
    found = answers.play(task(answers, 1.5), start, rule, 3)
    given, right, expected, wrong = zip(*found["curve"], strict=True)
    assert found["pile"] == (51 if start == answers.ONE else 54)
    assert given[0] == 0 if start == answers.ONE else 0 < given[0] <= 9
    assert right[-1] >= 0.98 > right[0]
    assert list(given) == sorted(given)
    assert all(0 <= one <= found["pile"] for one in expected)
    assert wrong == tuple(round((1 - share) * found["pile"]) for share in right)
    assert answers.answers_to(found, 0.95) <= answers.answers_to(found, 0.98) <= given[-1]


def test_kinds_are_those_of_classes_that_have_no_name(answers):
    found = answers.kinds_of(task(answers, 6.0), 1)
    assert found["proposed"] == 1
    assert found["pure"] == 1


@pytest.mark.parametrize("quality", ["good", "poor", "wrong"])
def test_names_are_as_near_to_their_classes_as_they_are_good(answers, quality):
    names = import_module("names")
    played = replace(task(answers, 6.0), shape=answers.Shape(3, 1, 51, 0.3))
    given = names.names_of(played, quality, np.random.default_rng(1))
    means = np.stack([played.features[played.truth == label].mean(0) for label in range(3)])
    nearest = ((given[:, None] - given.mean(0) - means + means.mean(0)) ** 2).sum(2).argmin(1)
    assert (nearest == np.roll(range(3), quality == "wrong")).all() or quality == "poor"
    found = answers.play(played, answers.NONE, answers.OURS, 0, given)
    assert found["curve"][0][0] == 0
    assert (found["curve"][0][1] > 0.8) == (quality == "good")


@pytest.mark.parametrize(("name", "cells"), [("answers", 16), ("names", 20)])
def test_the_page_is_made_from_committed_results(answers, name, cells):
    made = import_module(name)
    result, text = answers.read_json(made.RESULTS), answers.PAGE.read_text(encoding="utf-8")
    assert result["half"] == "report"
    assert len(result["cells"]) == cells
    assert made.fill(text, result) == text, f"run python benchmarks/{name}.py --page"
