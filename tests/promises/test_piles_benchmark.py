"""benchmarks/piles.py: its parts, its tasks, its figures, methods added by a file, and its page."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PHOTOGRAPHS = {"birds": 40, "groceries": 24, "mini-train": 16, "mini-val": 16, "mini-test": 20}
OTHERS = {"omniglot-background": 120, "omniglot-evaluation": 60}
OTHERS |= {f"docstrings-{part}": 22 for part in ("learn", "choose", "report")}
OTHERS |= {"pixels-drawings": 120, "pixels-photographs": 16}
PIXELS = {"pixels-drawings": 16 * 16, "pixels-photographs": 3 * 8 * 8}
METHOD = """
import numpy as np
from pile_tasks.methods import Answer

def constant(features, labels):
    rows = (labels < 0).sum()
    return Answer(np.eye(labels.max() + 1)[np.zeros(rows, int)], stranger=np.full(rows, 0.25))
"""


@pytest.fixture
def piles(benchmarks, monkeypatch):
    module = import_module("piles")
    monkeypatch.setattr(module, "threadpool_limits", lambda count: None)
    return module


def part_of(name: str):
    return import_module(f"pile_tasks.{name}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Features of few dimensions in the place of an encoder's."""
    rng = np.random.default_rng(6)
    sizes = {f"{name}-{e}": n for name, n in PHOTOGRAPHS.items() for e in ("photos", "lite0")}
    for name, classes in {**sizes, **OTHERS}.items():
        y = np.repeat(np.arange(classes), 30 if classes > 50 else 52)
        size = PIXELS.get(name, 40)
        x = (4 * rng.normal(size=(classes, size)))[y] + rng.normal(size=(len(y), size))
        np.savez(tmp_path / f"{name}.npz", x=x.astype(np.float16), y=y)
    return tmp_path


def test_a_run_resumes_and_takes_methods_from_files(piles, folder, capsys):
    out, added = folder / "choose.json", folder / "own.py"
    added.write_text(METHOD, encoding="utf-8")
    flags = [str(folder), "choose", "--tasks", "2", "--out", str(out)]
    flags += ["--cells", "birds, photos: 5-way"]
    piles.main([*flags, "--before", str(ROOT / "src")])
    first = piles.read_cells(out)
    capsys.readouterr()
    piles.main(flags)
    assert capsys.readouterr().out == ""  # all is in the file
    piles.main([*flags, "--method", str(added), "--only", "constant"])
    second = piles.read_cells(out)
    assert len(first["cells"]) >= 2
    for old, new in zip(first["cells"], second["cells"], strict=True):
        assert set(new["methods"]) - set(old["methods"]) == {"constant"}
        ours, before, constant = (new["methods"][n] for n in (piles.OURS, piles.BEFORE, "constant"))
        for figure in ("accuracy", "auroc", "log_loss", "lost"):
            assert ours.get(figure) == before.get(
                figure
            )  # the same version in a process of its own
        assert ours["accuracy"][0] > 0.9
        assert len(ours["accuracy"]) == old["tasks"] == 2
        assert all(score == 0.5 for score in constant.get("auroc", []))


def test_parts_share_no_row(piles, folder):
    domains = part_of("domains").domains
    rows = [
        {row.tobytes() for d in domains(folder, part) for own in d.classes for row in own}
        for part in ("learn", "choose", "report")
    ]
    assert not rows[0] & rows[1]
    assert not rows[0] & rows[2]
    assert not rows[1] & rows[2]


@pytest.mark.parametrize("part", ["choose", "report"])
def test_tasks_are_what_their_cells_say_and_always_the_same(piles, folder, part):
    every = part_of("cells").cells(part_of("domains").domains(folder, part))
    assert len({cell.name for cell in every}) == len(every) > 100
    for cell in every[::7]:
        task, again, shape = cell.task(3), cell.task(3), cell.shape
        assert np.array_equal(task.features, again.features)
        given = task.labels >= 0
        assert np.array_equal(np.bincount(task.truth[given]), [shape.shot] * shape.way)
        assert (task.truth[given] == task.labels[given]).all() or shape.wrong
        assert (task.truth[task.labels == -2] == -1).all()
        if cell.domain.kind == "photographs" and not shape.burst and shape.pile < 1500:
            strangers = (task.truth[task.pile] == -1).sum()
            assert strangers == round(shape.pile * shape.share)


def test_a_task_to_learn_from_is_a_function_of_its_number(piles, folder):
    learning, sources = part_of("learning"), part_of("domains").domains(folder, "learn")
    kinds = set()
    for number in range(30):
        first, again = (
            learning.random_task(sources, np.random.default_rng(number)) for _ in range(2)
        )
        assert np.array_equal(first.features, again.features)
        assert np.isfinite(first.features).all()
        kinds.add(first.features.shape[1])
    assert kinds & {40}
    assert kinds & {*PIXELS.values(), 64}
    assert kinds - {*PIXELS.values(), 64, 40}  # made up


def test_one_more_row_in_the_pile_changes_no_other(piles, folder):
    domain = part_of("domains").domains(folder, "choose")[0]
    cells, shape = part_of("cells"), part_of("tasks").Shape
    piles_of = (cells.Cell(domain, shape(5, 1, rows, 0.4)).task(0) for rows in (60, 61))
    small, large = ({row.tobytes() for row in task.features} for task in piles_of)
    assert small < large
    assert len(large) == len(small) + 1


def easy_task(seed: int = 0):
    """Three classes of 15 with two labels each, and 12 strangers far away."""
    rng = np.random.default_rng(seed)
    truth = np.array([0, 0, 1, 1, 2, 2, *np.repeat([0, 1, 2], 15), *[3] * 12])
    features = 5 * np.eye(4, 24)[truth] + 0.5 * rng.normal(size=(len(truth), 24))
    labels = np.where(np.arange(len(truth)) < 6, truth, -1)
    return features.astype(np.float32), labels, np.where(truth == 3, -1, truth)[6:]


def test_rivals_sort_an_easy_pile_in_any_order_of_rows(piles):
    features, labels, truth = easy_task()
    order = np.random.default_rng(1).permutation(len(labels))
    back = np.argsort(order[labels[order] < 0])
    for name, method in part_of("methods").RIVALS.items():
        answer, other = method(features, labels), method(features[order], labels[order])
        assert answer.classes.shape == (57, 3), name
        assert answer.classes.sum(1) == pytest.approx(1), name
        assert np.allclose(answer.classes, other.classes[back], atol=1e-3), name
        assert (answer.classes.argmax(1) == truth)[truth >= 0].mean() > 0.95, name


def test_the_rivals_that_are_made_for_strangers_find_them(piles):
    features, labels, truth = easy_task()
    methods, figures = part_of("methods"), part_of("figures").figures
    for name in ("nearest prototype", "nearest labels", "Mahalanobis", "label propagation", "OSLO"):
        found = figures(methods.RIVALS[name](features, labels), truth)
        assert found["auroc"] > 0.95, name


def test_figures_match_literal_loops(piles):
    rng = np.random.default_rng(5)
    truth = rng.integers(-1, 3, 40)
    classes, stranger = rng.dirichlet([1, 1, 1], 40), rng.random(40)
    found = part_of("figures").figures(
        part_of("methods").Answer(classes, stranger=stranger, score=None), truth
    )
    right = kept = loss = pairs = won = 0.0
    for p, s, t in zip(classes, stranger, truth, strict=True):
        every = [*(1 - s) * p, s]
        guess = int(np.argmax(every))
        right += (guess if guess < 3 else -1) == t
        loss -= np.log(s if t < 0 else 1 - s)
        kept += t >= 0 and int(np.argmax(p)) == t
        if t < 0:
            for other, its in zip(stranger, truth, strict=True):
                pairs += its >= 0
                won += its >= 0 and (s > other)
    gone, budget = set(), 0.05 * sum(1 - stranger)
    for row in np.argsort(-stranger):
        budget -= 1 - stranger[row]
        if budget < 0:
            break
        gone.add(row)
    members = [row for row in range(40) if truth[row] >= 0]
    assert found["sorted"] == pytest.approx(right / 40)
    assert found["log_loss"] == pytest.approx(loss / 40)
    assert found["accuracy"] == pytest.approx(kept / len(members))
    assert found["auroc"] == pytest.approx(won / pairs)
    assert found["lost"] == pytest.approx(len(gone & set(members)) / len(members))
    assert found["count"] == pytest.approx(abs(sum(stranger) - (truth < 0).sum()) / 40)


def test_calibration_error_is_of_bins_and_a_clear_score_becomes_a_clear_probability(piles):
    module = part_of("figures")
    probability = np.repeat([0.1, 0.9], 10)
    right = np.array([True] * 3 + [False] * 7 + [True] * 10)
    assert module.calibration_error(probability, right) == pytest.approx(0.15)
    rng = np.random.default_rng(2)
    score = np.concatenate([rng.normal(0, 1, 60), rng.normal(9, 1, 30)])
    found = module.as_probability(score)
    assert found[:60].max() < 0.05
    assert found[60:].min() > 0.95
    assert module.as_probability(rng.normal(size=90)).max() == 0


def test_the_page_shows_the_stored_results(piles):
    text = piles.PAGE.read_text(encoding="utf-8")
    assert piles.filled(text, piles.RESULTS) == text, "run python benchmarks/piles.py --page"
