"""What labels and a pile say of rows, recomputed in float64 with plain loops."""

import numpy as np
import pytest

from semishot.estimator.labels import NAMED_STRANGER
from semishot.estimator.neighbours import EDGE_POWER, WALKS, NeighbourGraph, find_near
from semishot.estimator.pile import LabeledPile
from semishot.estimator.spaces import fit_space
from semishot.estimator.statistics import SMALLEST, Known

L, N, D = 41, 3, 9


def directions(count, seed=0):
    x = np.random.default_rng(seed).normal(size=(count, D)) + 0.3
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def known(graph_rows, labels, weights=None, names=None):
    """A graph of these rows, of which some have labels: 0 to N - 1, -2 for named strangers."""
    graph = NeighbourGraph(graph_rows, 1 - 1e-5, np.arange(len(graph_rows)))
    rows = np.flatnonzero(labels != -1)
    given = (labels[rows, None] == np.arange(N)).astype(float)
    if weights is not None:
        given = given * weights[rows, None]
    x = graph_rows[rows]
    return Known(graph, graph.near.take(rows), x, x, given, names)


def some_labels(each=4, named=2, seed=1):
    labels = np.full(L, -1)
    order = np.random.default_rng(seed).permutation(L)
    labels[order[: N * each]] = np.arange(N * each) % N
    labels[order[N * each : N * each + named]] = NAMED_STRANGER
    return labels


def neighbours(rows, row, count):
    """The nearest rows, by a loop; itself counts as unlike."""
    along = [(float(rows[row] @ rows[j]) if j != row else 0.0, j) for j in range(len(rows))]
    return sorted(along, reverse=True)[:count]


def test_neighbours_are_the_nearest_rows_but_for_copies():
    rows = directions(L)
    near = find_near(rows, rows, 1 - 1e-5)
    assert (near.copy == np.arange(L)).all()
    for row in range(L):
        expected = neighbours(rows, row, 15)
        assert near.indices[row].tolist() == [j for _, j in expected]
        assert np.allclose(near.cosines[row], [c for c, _ in expected], atol=1e-6)


@pytest.mark.parametrize("number", range(3))
def test_what_arrives_solves_the_equation_of_label_propagation(number):
    """(I - a D^-1/2 W D^-1/2) Z = Y, but for what later steps would add."""
    rows, labels = directions(L), some_labels()
    given = known(rows, labels)
    count, passed_on, steps = WALKS[number]
    w = np.zeros((L, L))
    for i in range(L):
        for cosine, j in neighbours(rows, i, count):
            w[i, j] += max(cosine, 0) ** EDGE_POWER
            w[j, i] += max(cosine, 0) ** EDGE_POWER
    s = w / np.sqrt(np.outer(w.sum(0), w.sum(0)))
    y = np.zeros((L, N + 1))
    for i in range(L):
        if labels[i] != -1:
            y[i, N if labels[i] == NAMED_STRANGER else labels[i]] = 1
    dense = np.linalg.solve(np.eye(L) - passed_on * s, y)
    left = np.linalg.matrix_power(passed_on * s, steps + 1) @ dense  # of the steps that follow
    assert np.allclose(given.arrived[0][number], dense - left, atol=1e-6)


def test_a_row_is_compared_with_prototypes_made_without_it():
    """Whatever weight it has in them."""
    rows, labels = directions(L), some_labels()
    given = known(rows, labels)
    reference, graph = given.reference, given.graph
    seen = reference.statistics(rows, rows, graph.near)
    labeled = [[j for j in range(L) if labels[j] == c] for c in range(N)]
    for number in range(4):
        weights = reference.weights[number]
        for c in range(N):
            for i in range(L):
                p = sum(rows[j] for j in labeled[c])
                p = p + sum(weights[j, c] * rows[j] for j in range(L) if j != i)
                expected = float(p @ rows[i]) / np.linalg.norm(p)
                assert seen.pairs[i, c, number] == pytest.approx(expected, abs=1e-5)
    for i in range(L):  # the nearest label, and before centering
        for c in range(N):
            nearest = max(float(rows[i] @ rows[j]) for j in labeled[c])
            assert seen.pairs[i, c, 4] == pytest.approx(nearest, abs=1e-6)
            p = sum(rows[j] for j in labeled[c])
            expected = float(p @ rows[i]) / np.linalg.norm(p)
            assert seen.pairs[i, c, 8] == pytest.approx(expected, abs=1e-6)
        named = max(float(rows[i] @ rows[j]) for j in range(L) if labels[j] == NAMED_STRANGER)
        assert seen.rows[i, 9] == pytest.approx(named, abs=1e-6)


def test_a_held_out_label_is_seen_as_if_its_group_had_none():
    """Cosines with the labels alone, with the nearest label, before centering, and what arrives."""
    rows, labels = directions(L), some_labels(each=6)
    given = known(rows, labels)
    seen, held = given.held_out()
    special = np.flatnonzero(labels != -1)
    assert sorted(special[held]) == np.flatnonzero(labels >= 0).tolist()
    assert len(set(given.group[held].tolist())) == 4 * N
    for group in set(given.group[held].tolist()):
        removed = special[given.group == group]
        assert len(set(labels[removed].tolist())) == 1
        fewer = labels.copy()
        fewer[removed] = -1
        without = known(rows, fewer)
        expected = without.reference.statistics(rows, rows, without.graph.near)
        for place in np.flatnonzero(given.group[held] == group):
            row, own = special[held][place], labels[removed[0]]
            for number in (0, 4, 5, 6, 7, 8):
                found = seen.pairs[place, own, number]
                assert found == pytest.approx(expected.pairs[row, own, number], abs=1e-4)
            others = [c for c in range(N) if c != own]
            assert np.allclose(
                seen.pairs[place, others, 4:9], expected.pairs[row, others, 4:9], atol=1e-5
            )


def test_one_label_is_never_held_out_and_copies_are_held_out_together():
    rows = directions(L)
    labels = np.full(L, -1)
    labels[:3] = [0, 1, 2]
    assert len(known(rows, labels).held_out()[1]) == 0
    twice = np.concatenate([rows, rows[:4]])
    labels = np.full(L + 4, -1)
    labels[[0, 1, 2, 3, L, L + 1, L + 2, L + 3]] = 0
    labels[4:6] = [1, 2]
    pile = LabeledPile(twice)
    special = np.flatnonzero(labels >= 0)
    x = pile.space(twice[special])
    given = (labels[special, None] == np.arange(N)).astype(float)
    group = Known(pile.graph, pile.near.take(special), x, x, given).group
    assert (group[:4] == group[-4:]).all()
    assert len(set(group[:4].tolist())) == 4


def test_a_class_without_a_label_begins_with_its_name():
    rows = directions(L)
    labels = np.full(L, -1)
    labels[:4] = [0, 0, 1, 1]
    names = np.zeros((N, D))
    names[2] = directions(1, seed=5)[0]
    given = known(rows, labels, names=names)
    seen = given.reference.statistics(rows, rows, given.graph.near)
    for number in (0, 9):  # the prototype is the name
        assert np.allclose(seen.pairs[:, 2, number], rows @ names[2], atol=1e-5)
    assert np.allclose(seen.pairs[:, 2, 5:8], np.log(SMALLEST) / 4, atol=1e-5)


def test_near_copies_count_once_in_the_graph():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(60, 40))
    burst = x[7] + 0.01 * rng.normal(size=(50, 40))
    pile = LabeledPile(np.concatenate([x, burst]))
    assert len(pile.graph.rows) == 60
    group = np.array([7, *range(60, 110)])
    assert len(set(pile.near.copy[group].tolist())) == 1  # all are copies of one row of the graph
    weights = pile.near.weights[group][pile.near.indices[group] == pile.near.copy[group][:, None]]
    assert not weights.any()  # of an edge to a copy


def test_a_weight_of_2_is_twice_the_label():
    rows, labels = directions(L), some_labels(each=1, named=0)
    own = int(np.flatnonzero(labels == 0)[0])
    weights = np.where(np.arange(L) == own, 2.0, 1.0)
    one, two = known(rows, labels), known(rows, labels, weights)
    assert np.allclose(two.arrived[0][:, :, 0], 2 * one.arrived[0][:, :, 0])
    assert np.allclose(two.reference.sums[0][0], 2 * one.reference.sums[0][0])


def test_the_kernel_of_few_features_is_a_gaussian():
    x = np.random.default_rng(5).normal(size=(31, 3))
    space = fit_space(x, "auto", np.ones(31, bool))
    rows = space(x)
    pairs = [((a - b) ** 2).sum() for i, a in enumerate(x) for b in x[:i]]
    width = 0.1 * np.median(pairs)
    for i in range(31):
        for j in range(31):
            expected = np.exp(-((x[i] - x[j]) ** 2).sum() / 2 / width)
            assert rows[i] @ rows[j] == pytest.approx(expected, abs=0.03)
    assert np.allclose((rows**2).sum(1), 1)


@pytest.mark.parametrize("features", [3, 10, 40])
def test_rotation_scale_and_order_change_no_answer(features):
    """With the kernel, with the cosine and between. Features of equal scale, so that none is standardized."""
    rng = np.random.default_rng(6)
    truth = rng.integers(0, 4, 150)
    x = 2 * rng.normal(size=(4, features))[truth] + rng.normal(size=(150, features))
    x = x @ np.linalg.inv(np.linalg.cholesky(np.cov(x.T))).T if features == 3 else x
    labels = np.where(np.arange(150) < 24, np.where(truth == 3, -2, truth), -1)
    _, expected = LabeledPile(x).learn(labels)
    turn = np.linalg.qr(rng.normal(size=(features, features)))[0]
    order = rng.permutation(150)
    for moved in (x @ turn, 1e3 * x):
        _, found = LabeledPile(moved).learn(labels)
        assert np.allclose(found.classes, expected.classes, atol=1e-3)
        assert np.allclose(found.stranger, expected.stranger, atol=1e-3)
    _, found = LabeledPile(x[order]).learn(labels[order])
    assert np.allclose(found.classes, expected.classes[order], atol=1e-3)
    assert np.allclose(found.stranger, expected.stranger[order], atol=1e-3)
