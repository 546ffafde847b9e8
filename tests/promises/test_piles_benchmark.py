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
    first = piles.read_cells(out)["cells"]
    capsys.readouterr()
    piles.main(flags)
    assert capsys.readouterr().out == ""  # all is in the file
    piles.main([*flags, "--method", str(added), "--only", "constant"])
    for old, new in zip(first, piles.read_cells(out)["cells"], strict=True):
        assert set(new["methods"]) - set(old["methods"]) == {"constant"}
        ours, before = (new["methods"][name]["accuracy"] for name in (piles.OURS, piles.BEFORE))
        assert ours == before  # the same version in a process of its own
        assert ours[0] > 0.9


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


def test_rivals_sort_an_easy_pile_in_any_order_of_rows(piles):
    """Three classes of 15 with two labels each, and 12 strangers far away."""
    rng = np.random.default_rng(0)
    truth = np.array([0, 0, 1, 1, 2, 2, *np.repeat([0, 1, 2], 15), *[3] * 12])
    features = 5 * np.eye(4, 24)[truth] + 0.5 * rng.normal(size=(len(truth), 24))
    labels = np.where(np.arange(len(truth)) < 6, truth, -1)
    truth = truth[6:]
    order = np.random.default_rng(1).permutation(len(labels))
    back = np.argsort(order[labels[order] < 0])
    for name, method in part_of("methods").RIVALS.items():
        answer, other = method(features, labels), method(features[order], labels[order])
        assert answer.classes.sum(1) == pytest.approx(1), name
        assert np.allclose(answer.classes, other.classes[back], atol=1e-3), name
        assert (answer.classes.argmax(1) == truth)[truth < 3].mean() > 0.95, name


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


def test_the_page_shows_the_stored_results(piles):
    text = piles.PAGE.read_text(encoding="utf-8")
    assert piles.filled(text, piles.RESULTS) == text, "run python benchmarks/piles.py --page"
