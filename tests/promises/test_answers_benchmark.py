"""benchmarks/answers.py: the user it plays, what counts as right, and the page made of stored results."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def answers():
    before, modules = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield import_module("answers")
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


def task(answers, seed: int = 0, far: float = 4.0):
    """Three classes of 12 with a label each, and 15 strangers of one kind."""
    rng = np.random.default_rng(seed)
    truth = np.array([0, 1, 2, *np.repeat([0, 1, 2], 12), *[-1] * 15])
    centers = far * rng.normal(size=(4, 40))
    features = (centers[truth] + 3 * rng.normal(size=(len(truth), 40))).astype(np.float32)
    labels = np.where(np.arange(len(truth)) < 3, truth, -1)
    return answers.Task(features, labels, truth)


def test_a_row_is_right_if_answered_or_sorted_as_in_truth(answers):
    one = task(answers, far=2.0)
    user = answers.User(one, answers.ONE)
    user.answer(np.array([5, 45]))
    assert user.answers == 2
    assert user.labels[[5, 45]].tolist() == [0, -2]
    learned, right = user.judged()
    for row in range(len(one.truth)):
        rejected = learned.answer.scores[row] < learned.members.cutoff(0.05)
        guess = -1 if rejected else learned.answer.classes[row].argmax()
        known = row < 3 or row in (5, 45)
        assert right[row] == (known or guess == one.truth[row])
    assert not right.all()


def test_without_labels_a_class_that_was_not_met_is_wrong(answers):
    one = task(answers)
    user = answers.User(one, answers.NONE)
    user.answer(np.array([4, 17, 20, 41]))  # classes 0 and 1, and a stranger
    _, right = user.judged()
    open_rows = np.setdiff1d(np.arange(len(one.truth)), [4, 17, 20, 41])
    assert not right[open_rows][one.truth[open_rows] == 2].any()
    assert right[open_rows][one.truth[open_rows] == 1].any()


@pytest.mark.parametrize("start", ["one label per class", "no label"])
@pytest.mark.parametrize("rule", ["ours", "highest entropy", "random"])
def test_a_played_task_ends_with_98_percent_right(answers, rule, start, monkeypatch):
    monkeypatch.setattr(answers, "FIRST", 9)
    one = task(answers, far=1.5)
    found = answers.play(one, start, rule, 3)
    given, right = zip(*found["curve"], strict=True)
    assert found["pile"] == (51 if start == answers.ONE else 54)
    assert given[0] == (0 if start == answers.ONE else 9)
    assert right[-1] >= 0.98 > right[0]
    assert list(given) == sorted(given)
    assert given[-2] < found[0.98] <= given[-1] <= found["pile"]
    assert found[0.95] <= found[0.98]
    assert found["look_through"] <= found["at_once"]


def test_means_have_standard_errors_and_by_hand_every_image_is_an_answer(answers):
    runs = [
        {"pile": 40, 0.95: n, 0.98: n + 4, "curve": [(0, 0.5), (10, 0.98)], "look_through": 9}
        | {"at_once": 12}
        for n in (2, 4, 9)
    ]
    found = answers.summary(runs)
    assert found["answers_95"] == 5.0
    assert found["answers_95_error"] == pytest.approx(13**0.5 / 3**0.5, abs=0.05)
    assert found["answers_98"] == 9.0
    assert found["right"] == [0.5, 0.98]
    assert answers.by_hand(runs)["answers_98"] == 40.0


def test_the_page_and_its_plot_are_made_from_committed_results(answers, tmp_path):
    result = answers.read_json(answers.RESULTS)
    assert result["half"] == "report"
    assert len(result["cells"]) == 8
    text = answers.PAGE.read_text(encoding="utf-8")
    assert answers.fill(text, result) == text, "run python benchmarks/answers.py --page"
    pytest.importorskip("matplotlib")
    answers.plot(result["cells"], tmp_path / "plot.png")
    assert 10_000 < (tmp_path / "plot.png").stat().st_size < 200_000


def test_a_folder_of_features_is_needed(answers, capsys):
    with pytest.raises(SystemExit):
        answers.main([])
    assert "FOLDER with features is missing" in capsys.readouterr().err
