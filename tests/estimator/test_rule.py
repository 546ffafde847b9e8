"""The learned rule: NumPy's network is the one that was trained; order of rows and classes is irrelevant."""

import sys
from pathlib import Path

import numpy as np
import pytest

from semishot.estimator.rule import WIDER, Rule, learned_rule
from semishot.estimator.statistics import PAIR, PILE, ROW, Statistics
from support.optional_torch import module_or_skip

torch = module_or_skip("torch")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
R, K, H = 7, 11, 5


def numbers(classes, seed=0):
    """Statistics of rows, of the pile and of held-out labels, classes of those, and numbers of the pile."""
    rng = np.random.default_rng(seed)

    def some(count):
        pairs, rows = rng.normal(size=(count, classes, PAIR)), rng.normal(size=(count, ROW))
        return Statistics(pairs.astype(np.float32), rows.astype(np.float32))

    return some(R), some(K), some(H), rng.integers(0, classes, H), rng.normal(size=PILE)


def random_rule(learn_rule, seed=0):
    torch.manual_seed(seed)
    network = learn_rule.Network(width=8)
    with torch.no_grad():
        for each in network.parameters():
            each.normal_(0, 0.3)
    return network, Rule({n.replace("_", "."): p.detach().numpy() for n, p in network.p.items()})


@pytest.fixture
def learn_rule(monkeypatch):
    torch.nn  # noqa: B018 - without torch, skips
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield __import__("learn_rule")
    sys.modules.pop("learn_rule")


@pytest.mark.parametrize("classes", [1, 2, 4])
def test_numpy_computes_what_was_trained(classes, learn_rule, tmp_path):
    """From the file of a task, as training reads it."""
    network, rule = random_rule(learn_rule)
    rows, context, held_out, given, pile = numbers(classes)
    arrays = {"pile": pile.astype(np.float32), "truth": np.zeros(R, int), "held_class": given}
    for name, each in (("", rows), ("context_", context), ("held_", held_out)):
        arrays |= {f"{name}pairs": each.pairs, f"{name}rows": each.rows}
    np.savez(tmp_path / "task.npz", **arrays)
    task = learn_rule.load(tmp_path / "task.npz")
    unshuffled = type("Same", (), {"permutation": staticmethod(np.arange)})
    wider = {**task, "pairs": np.zeros((R, 5, PAIR), np.float32)}  # others of the batch have 5
    wider |= {f"{n}pairs": np.zeros((2, 5, PAIR), np.float32) for n in ("context_", "held_")}
    wider |= {f"{n}rows": np.zeros((2, ROW), np.float32) for n in ("context_", "held_")}
    wider |= {"held_class": np.zeros(2, int)}
    batch = learn_rule.batch_of([task, wider], unshuffled, "cpu", R)
    with torch.no_grad():
        logits, log_odds, doubt = network(batch)
    shared = rule.summarize(pile, context, held_out, given)
    mine, strangers = rule.logits(shared, rows)
    assert np.allclose(mine, logits[0, :, :classes], atol=1e-5)
    assert np.allclose(strangers, log_odds[0], atol=1e-5)
    assert np.isclose(shared.doubt, WIDER * doubt[0], atol=1e-5)


@pytest.mark.parametrize("weights", ["random", "shipped"])
def test_the_order_of_rows_and_classes_is_irrelevant(weights, learn_rule):
    rule = learned_rule() if weights == "shipped" else random_rule(learn_rule)[1]
    rows, context, held_out, given, pile = numbers(4)
    shared = rule.summarize(pile, context, held_out, given)
    logits, log_odds = rule.logits(shared, rows)
    rng = np.random.default_rng(3)
    turn = rng.permutation(4)
    orders = [rng.permutation(count) for count in (R, K, H)]
    moved = [
        Statistics(each.pairs[order][:, turn], each.rows[order])
        for each, order in zip((rows, context, held_out), orders, strict=True)
    ]
    other = rule.summarize(pile, *moved[1:], np.argsort(turn)[given[orders[2]]])
    found, odds = rule.logits(other, moved[0])
    assert np.allclose(found, logits[orders[0]][:, turn], atol=1e-4)
    assert np.allclose(odds, log_odds[orders[0]], atol=1e-4)
    assert np.isclose(other.doubt, shared.doubt, rtol=1e-4)


def test_shipped_weights_are_small_and_fit_the_trained_network(learn_rule):
    weights = learned_rule().weights
    assert 4 * sum(each.size for each in weights.values()) < 200_000
    network = learn_rule.Network(width=weights["own"].shape[0])
    assert {n.replace("_", "."): tuple(p.shape) for n, p in network.p.items()} == {
        name: each.shape for name, each in weights.items()
    }


@pytest.mark.parametrize("empty", ["context", "held_out"])
def test_no_pile_and_no_held_out_labels_are_numbers_too(empty):
    rows, context, held_out, given, pile = numbers(3)
    if empty == "context":
        context = Statistics(context.pairs[:0], context.rows[:0])
    else:
        held_out, given = Statistics(held_out.pairs[:0], held_out.rows[:0]), given[:0]
    shared = learned_rule().summarize(pile, context, held_out, given)
    for found in (*learned_rule().logits(shared, rows), shared.doubt):
        assert np.isfinite(found).all()
