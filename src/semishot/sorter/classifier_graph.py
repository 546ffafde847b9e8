"""A fitted classifier as nodes of an ONNX graph: features in; label, probabilities and scores out.

Letters: B rows, D features, N classes, L rows of the graph of neighbours, k neighbours.
"""

import numpy as np

from semishot.estimator import constants as const
from semishot.estimator.classifier import PrototypeClassifier
from semishot.estimator.labels import UNLABELED
from semishot.estimator.models import GraphModel, PrototypeModel
from semishot.estimator.spaces import AnySpace, Array, GaussianSpace
from semishot.estimator.strangers import stranger_probability
from semishot.sorter.encoders.graph_builder import TYPES, OnnxGraph, Shape

OUTPUTS = ["label", "probabilities", "distractor_score", "stranger_probability"]
STEPS = 4096
"""Steps of the tables of what scores mean, interpolated linearly."""


def output_types(classifier: PrototypeClassifier) -> dict[str, tuple[str, Shape]]:
    one, many = ("batch",), ("batch", len(classifier.classes_))
    shapes = (("int64", one), ("float32", many), ("float32", one), ("float32", one))
    return dict(zip(OUTPUTS, shapes, strict=True))


def draw_classifier(graph: OnnxGraph, classifier: PrototypeClassifier, features: str) -> None:
    """Add the nodes from features (B, D) to `OUTPUTS`."""
    model = classifier.model_
    rows = _in_space(graph, model.space, features)
    if isinstance(model, GraphModel):
        logits, scores = _by_neighbours(graph, model, rows)  # (B, N), (B,)
    else:
        logits, scores = _by_prototypes(graph, model, rows)
    members, cutoff = classifier.members_, -np.inf
    if members is not None and classifier.reject is not None:
        cutoff = members.cutoff(classifier.reject)
    best = graph.add("ArgMax", logits, axis=-1, keepdims=0)
    rejected = graph.add("Less", scores, graph.constant(cutoff))
    graph.add("Where", rejected, graph.constant(UNLABELED, np.int64), best, output=OUTPUTS[0])
    graph.add("Softmax", logits, axis=-1, output=OUTPUTS[1])
    for column, output in enumerate(OUTPUTS[2:]):
        _look_up(graph, classifier, scores, column, output)


def _look_up(
    graph: OnnxGraph, classifier: PrototypeClassifier, scores: str, column: int, output: str
) -> None:
    """What scores (B,) mean, by a table that is even in u = z / (1 + |z|) from -1 to 1."""
    members = classifier.members_
    mean, spread = (members.mean, members.spread) if members is not None else (0.0, 1.0)
    z = graph.add("Div", graph.add("Sub", scores, graph.constant(mean)), graph.constant(spread))
    one = graph.constant(1.0)
    u = graph.add("Div", z, graph.add("Add", graph.add("Abs", z), one))
    position = graph.add("Mul", graph.add("Add", u, one), graph.constant(STEPS / 2))
    bounds = graph.constant(0.0), graph.constant(STEPS - 1.0)
    below = graph.add("Clip", graph.add("Floor", position), *bounds)
    index = graph.add("Cast", below, to=TYPES["int64"])
    table = graph.constant(score_table(classifier)[:, column])
    low = graph.add("Gather", table, index)
    high = graph.add("Gather", table, graph.add("Add", index, graph.constant(1, np.int64)))
    part = graph.add("Sub", position, below)
    graph.add("Add", low, graph.add("Mul", part, graph.add("Sub", high, low)), output=output)


def score_table(classifier: PrototypeClassifier) -> Array:
    """(STEPS + 1, 2): distractor score and stranger probability; NaN where they are not known."""
    members, strangers = classifier.members_, classifier.strangers_
    table = np.full((STEPS + 1, 2), np.nan)
    if members is not None:
        u = np.linspace(-1, 1, STEPS + 1)
        with np.errstate(divide="ignore"):
            z = u / (1 - np.abs(u))  # -1 and 1 map to the infinities
        scores = np.nan_to_num(members.mean + members.spread * z, posinf=1e30, neginf=-1e30)
        table[:, 0] = members.share_above(scores)
        if strangers is not None:
            table[:, 1] = stranger_probability(scores, members, strangers)
    return table


def _in_space(graph: OnnxGraph, space: AnySpace, x: str) -> str:
    """Features (B, D) where the classifier compares them."""
    if isinstance(space, GaussianSpace):
        return _lifted(graph, space, x)
    if space.normalization == "centered":
        x = graph.add("Sub", _unit(graph, x), graph.constant(space.center))
    if space.normalization != "none":
        x = _unit(graph, x)
    return graph.add("Div", x, graph.constant(space.length))


def _lifted(graph: OnnxGraph, space: GaussianSpace, x: str) -> str:
    """Coordinates whose cosine is about the Gaussian kernel, and what no pivot explains."""
    x = graph.add("Sub", x, graph.constant(space.center))
    x = graph.add("Div", x, graph.constant(space.width))
    halves = graph.add("Mul", _distances(graph, x, space.pivots), graph.constant(-0.5))
    kernel = graph.add("Exp", halves)
    along = graph.add("MatMul", kernel, graph.constant(space.mix.T))
    squares = graph.add("ReduceSumSquare", along, graph.integers(-1), keepdims=1)
    rest = graph.add("Relu", graph.add("Sub", graph.constant(1.0), squares))
    return graph.add("Concat", along, graph.add("Sqrt", rest), axis=-1)


def _unit(graph: OnnxGraph, x: str) -> str:
    """Rows of length 1."""
    length = graph.add("ReduceL2", x, graph.integers(-1), keepdims=1)
    smallest = graph.constant(np.finfo(np.float32).tiny)
    return graph.add("Div", x, graph.add("Max", length, smallest))


def _distances(graph: OnnxGraph, x: str, others: Array) -> str:
    """Squared distances (B, N) of rows (B, D) to others (N, D)."""
    beside = graph.add("Unsqueeze", x, graph.integers(1))
    apart = graph.add("Sub", beside, graph.constant(others[None]))
    return graph.add("ReduceSumSquare", apart, graph.integers(-1), keepdims=0)


def _by_prototypes(graph: OnnxGraph, model: PrototypeModel, rows: str) -> tuple[str, str]:
    """Minus squared distances (Eq. 2), and the largest of them."""
    logits = graph.add("Neg", _distances(graph, rows, model.prototypes))
    return logits, graph.add("ReduceMax", logits, graph.integers(-1), keepdims=0)


def _by_neighbours(graph: OnnxGraph, model: GraphModel, rows: str) -> tuple[str, str]:
    """Logits (B, N) and scores (B,) by neighbours and prototypes, as in `GraphModel`."""
    add, constant, last = graph.add, graph.constant, graph.integers(-1)
    smallest = constant(const.TINY)

    def product(matrix: Array) -> str:
        return add("MatMul", rows, constant(matrix.T))

    count = graph.integers(min(const.NEIGHBOURS, len(model.rows)))
    cosines, index = graph.add_several(  # (B, k), the nearest first
        "TopK", [product(model.rows), count], ["cosines", "neighbours"]
    )
    weights = add("Pow", add("Relu", cosines), constant(float(const.EDGE_POWER)))
    total = add("Max", add("ReduceSum", weights, last, keepdims=1), smallest)  # (B, 1)
    passed = add("Gather", constant(model.passed), index)  # (B, k, N + 1)
    spread = add("Mul", add("Unsqueeze", weights, last), passed)
    both_ways = add("Sqrt", add("Div", constant(2.0), total))
    z = add("Mul", add("ReduceSum", spread, graph.integers(1), keepdims=0), both_ways)
    classes = len(model.prototypes)
    ends = [graph.integers(number) for number in (0, classes, classes + 1)]
    axis = graph.integers(1)
    arrived = add("Max", add("Slice", z, ends[0], ends[1], axis), smallest)  # (B, N)
    named = add("Slice", z, ends[1], ends[2], axis)  # (B, 1)
    by_graph = add("Log", arrived)
    lost = add("Div", add("Mul", named, constant(const.NAMED_WEIGHT)), arrived)
    raw = add("Add", by_graph, product(model.scoring))
    raw = add("Sub", raw, add("Log", add("Add", lost, constant(1.0))))
    best = add("Mul", weights, add("Gather", constant(model.best), index))
    around = add("Div", add("ReduceSum", best, last, keepdims=1), total)  # (B, 1)
    own = add("Mul", add("ReduceMax", raw, last, keepdims=1), constant(1 - model.share))
    scores = add("Add", own, add("Mul", around, constant(model.share)))
    pulled = add("Mul", product(model.prototypes), constant(model.pull))
    logits = add("Add", add("Mul", by_graph, constant(model.graph_weight)), pulled)
    nearest = add("Gather", index, constant(0, np.int64), axis=1)  # (B,)
    known = add("Gather", constant(model.answers), nearest)  # (B, N + 1)
    first = add("Slice", cosines, ends[0], graph.integers(1), axis)
    same = add("Greater", first, constant(const.SAME))  # (B, 1)
    logits = add("Where", same, add("Slice", known, ends[0], ends[1], axis), logits)
    scores = add("Where", same, add("Slice", known, ends[1], ends[2], axis), scores)
    return logits, add("Squeeze", scores, last)
