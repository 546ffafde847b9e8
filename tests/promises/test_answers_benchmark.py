"""benchmarks/answers.py: the user it plays, and the page made of stored results."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def answers(benchmarks):
    return import_module("answers")


def task(answers, seed: int = 0, far: float = 4.0):
    """Three classes of 12 with a label each, and 15 strangers of one kind."""
    rng = np.random.default_rng(seed)
    truth = np.array([0, 1, 2, *np.repeat([0, 1, 2], 12), *[-1] * 15])
    centers = far * rng.normal(size=(4, 40))
    features = (centers[truth] + 3 * rng.normal(size=(len(truth), 40))).astype(np.float32)
    labels = np.where(np.arange(len(truth)) < 3, truth, -1)
    return answers.Task(features, labels, truth)


@pytest.mark.parametrize("start", ["one label per class", "no label"])
@pytest.mark.parametrize("rule", ["ours", "highest entropy", "random"])
def test_a_played_task_ends_with_98_percent_right(answers, rule, start, monkeypatch):
    monkeypatch.setattr(answers, "FIRST", 9)
    found = answers.play(task(answers, far=1.5), start, rule, 3)
    given, right = zip(*found["curve"], strict=True)
    assert found["pile"] == (51 if start == answers.ONE else 54)
    assert given[0] == (0 if start == answers.ONE else 9)
    assert right[-1] >= 0.98 > right[0]
    assert list(given) == sorted(given)
    assert given[-2] < found[0.98] <= given[-1] <= found["pile"]
    assert found[0.95] <= found[0.98]
    assert found["look_through"] <= found["at_once"]


def test_the_page_and_its_plot_are_made_from_committed_results(answers, tmp_path):
    result = answers.read_json(answers.RESULTS)
    assert result["half"] == "report"
    assert len(result["cells"]) == 8
    text = answers.PAGE.read_text(encoding="utf-8")
    assert answers.fill(text, result) == text, "run python benchmarks/answers.py --page"
    pytest.importorskip("matplotlib")
    answers.plot(result["cells"], tmp_path / "plot.png")
    assert 10_000 < (tmp_path / "plot.png").stat().st_size < 200_000
