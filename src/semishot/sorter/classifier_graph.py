"""A fitted classifier as nodes of an ONNX graph: features in; label and probabilities out.

The same steps as `Space`, `Reference.statistics` and `Rule.logits`.
Letters: B rows, D features, N classes, L rows of the graph of neighbours, k neighbours, W hidden units.
"""

from typing import Any

import numpy as np

from semishot.estimator.classifier import PrototypeClassifier
from semishot.estimator.labels import UNLABELED
from semishot.estimator.neighbours import EDGE_POWER, NEIGHBOURS, TINY, WALKS
from semishot.estimator.prototype_rule import PrototypeModel
from semishot.estimator.rule import SMALLEST_SPREAD, RuleModel, learned_rule
from semishot.estimator.spaces import Array, Normalized, Space
from semishot.estimator.statistics import NO_NAMED_STRANGER, SMALLEST, Reference
from semishot.sorter.encoders.graph import TYPES, Value, node

OUTPUTS = ["label", "probabilities", "stranger_probability"]


def draw_classifier(classifier: PrototypeClassifier, features: Value) -> None:
    """Add the nodes from features (B, D) to `OUTPUTS`."""
    model, rule = classifier.fitted_.learned.model, classifier.fitted_.learned.rule
    logits, log_odds = draw_rule(rule, features)  # (B, N), (B,)
    if isinstance(model, PrototypeModel):
        logits = 0.0 - squared_distances(normalized(model.space, features), model.prototypes)
    probabilities, stranger = node("Softmax", logits, axis=-1), node("Sigmoid", log_odds)
    label = node("ArgMax", probabilities, axis=-1, keepdims=0)
    if classifier.reject is not None:
        cutoff: Any = classifier.cutoff_
        if cutoff is None:  # more probable than any class
            cutoff = (1.0 - stranger) * reduced("Max", probabilities)
        label = node("Where", stranger > cutoff, UNLABELED, label)
    features.graph.output(OUTPUTS[0], label, "int64", "batch")
    classes = len(classifier.classes_)
    features.graph.output(OUTPUTS[1], probabilities, "float32", "batch", classes)
    features.graph.output(OUTPUTS[2], stranger, "float32", "batch")


def reduced(how: str, x: Value, axis: int = -1, keepdims: bool = False) -> Value:
    """Sum, Mean, Max, L2 or SumSquare over an axis."""
    return node(f"Reduce{how}", x, [axis], keepdims=int(keepdims))


def columns(x: Value, first: int, last: int) -> Value:
    """Columns first to last - 1 of (B, ...)."""
    return node("Slice", x, [first], [last], [1])


def joined(*parts: Value) -> Value:
    """Side by side, in the last axis."""
    return node("Concat", *parts, axis=-1)


def flags(x: Value) -> Value:
    """True and false as 1 and 0."""
    return node("Cast", x, to=TYPES["float32"])


def unit(x: Value) -> Value:
    """Rows of length 1."""
    return x / node("Max", reduced("L2", x, keepdims=True), np.finfo(np.float32).tiny)


def squared_distances(x: Value, others: Array) -> Value:
    """(B, D), (N, D) -> (B, N)."""
    return reduced("SumSquare", node("Unsqueeze", x, [1]) - others[None])


def normalized(space: Normalized, x: Value) -> Value:
    """Features (B, D) where a refiner compares them."""
    if space.normalization == "centered":
        x = unit(x) - space.center
    if space.normalization != "none":
        x = unit(x)
    return x / space.length


def draw_space(space: Space, x: Value) -> tuple[Value, Value]:
    """Features (B, D) in the space of the rule, and their directions before centering."""
    scaled = (x - space.shift) / space.scale
    directions, parts = unit(scaled), []
    if space.by_cosine > 0:
        parts.append(unit(directions - space.center) * space.by_cosine**0.5)
    if space.by_cosine < 1:
        squares = squared_distances(scaled / space.width, space.pivots)
        along = node("Exp", squares * -0.5) @ space.mix.T
        rest = node("Relu", 1.0 - reduced("SumSquare", along, keepdims=True))
        parts.append(joined(along, node("Sqrt", rest)) * (1 - space.by_cosine) ** 0.5)
    return joined(*parts), directions


def draw_rule(model: RuleModel, features: Value) -> tuple[Value, Value]:
    """Logits of classes (B, N), and log-odds of a stranger (B,)."""
    pairs, rows = statistics(model.reference, *draw_space(model.space, features))
    w, shared = learned_rule().weights, model.shared
    scaled = standardized(rows, shared.row_center, shared.row_spread)
    of_row = joined(rows, scaled) @ w["row"] + shared.first
    scaled = standardized(pairs, shared.center, shared.spread)
    apart = pairs - best_other(pairs, model.reference.labels.shape[1])
    of_pair = joined(pairs, apart, scaled) @ w["pair"]
    h = node("Relu", of_pair + node("Unsqueeze", of_row, [1]))  # (B, N, W)
    across = joined(reduced("Mean", h, 1), reduced("Max", h, 1)) @ w["across"]
    h = node("Relu", h @ w["own"] + node("Unsqueeze", across, [1]) + shared.second)
    pooled = joined(reduced("Max", h, 1), reduced("Mean", h, 1))
    hidden = node("Relu", pooled @ w["stranger.1"] + w["stranger.1.bias"])
    log_odds = hidden @ w["stranger.2"] + w["stranger.2.bias"]
    return node("Squeeze", h @ w["logit"], [2]), node("Squeeze", log_odds, [1])


def standardized(values: Value, center: Array, spread: Array) -> Value:
    return node("Clip", (values - center) / (spread + SMALLEST_SPREAD), -5.0, 5.0)


def best_other(pairs: Value, classes: int) -> Value:
    """(B, N, A) -> (B, N, A)."""
    if classes == 1:
        return pairs
    best, _ = pairs.graph.add("TopK", pairs, [2], outputs=2, axis=1)
    first, second = columns(best, 0, 1), columns(best, 1, 2)
    return node("Where", node("Equal", pairs, first), second, first)


def statistics(reference: Reference, x: Value, directions: Value) -> tuple[Value, Value]:
    """Numbers of each row and class (B, N, 10), and of each row (B, 10)."""
    classes, size = reference.labels.shape[1], len(reference.rows)
    cosines = x @ reference.rows.T  # (B, L)
    closest = node("ArgMax", cosines, axis=-1, keepdims=0)
    same = reduced("Max", cosines, keepdims=True)
    copied = flags(same > reference.same)  # (B, 1)
    count = min(NEIGHBOURS, max(size - 1, 1))
    others = cosines * (1.0 - flags(cosines > reference.same))
    nearest, index = x.graph.add("TopK", others, [count], outputs=2, axis=-1)
    pairs = []
    for sums, weights in zip(reference.sums, reference.weights, strict=True):
        along = x @ sums.T  # (B, N)
        own = node("Gather", weights, closest) * copied
        squares = (sums**2).sum(1) - own * 2.0 * along + own * own
        cosine = (along - own * same) / node("Sqrt", node("Max", squares, TINY))
        pairs.append(node("Clip", cosine, -1.0, 1.0) * flags(squares > 1e-9))
    best = nearest_labels(x, reference)  # (B, N + 1)
    weights = node("Pow", node("Relu", nearest), float(EDGE_POWER))  # (B, k)
    arrived = [arriving(weights, index, reference, number) for number in range(len(WALKS))]
    pairs += [columns(each, 0, classes) for each in (best, *arrived)]
    pairs += [directions @ reference.by_direction.T, x @ reference.names.T]
    last = count - 1
    rows = [columns(nearest, min(n, last), min(n, last) + 1) for n in (0, 2, 6, 14)]
    weights = weights + TINY
    total = reduced("Sum", weights, keepdims=True)
    for values in reference.around:
        around = weights * node("Gather", values, index)
        rows.append(reduced("Sum", around, keepdims=True) / total)
    rows += [columns(each, classes, classes + 1) for each in (*arrived[1:], best)]
    return joined(*(node("Unsqueeze", each, [2]) for each in pairs)), joined(*rows)


def nearest_labels(x: Value, reference: Reference) -> Value:
    """The largest cosines (B, N + 1) with a label of each class, 0 if it has none, and with a named
    stranger."""
    labels = reference.labels
    of_kind = np.column_stack([labels > 0, labels.sum(1) == 0]).T  # (N + 1, S)
    of_kind = np.pad(of_kind, [(0, 0), (0, 1)])  # so that there is one
    labeled = np.pad(reference.labeled, [(0, 1), (0, 0)])
    along = node("Unsqueeze", x @ labeled.T, [1])  # (B, 1, S + 1)
    nearest = reduced("Max", along + np.where(of_kind, 0.0, -4.0), 2)
    none = np.append(np.zeros(labels.shape[1]), NO_NAMED_STRANGER)
    given = of_kind.any(1)
    return nearest * given + np.where(given, 0.0, none)


def arriving(weights: Value, index: Value, reference: Reference, number: int) -> Value:
    """Weights of edges (B, k) and their ends -> the log of what arrives (B, N + 1), over 4."""
    count, passed_on, _ = WALKS[number]
    weights, index = columns(weights, 0, count), columns(index, 0, count)
    total = reduced("Sum", weights, keepdims=True) * 2.0
    degree = node("Gather", reference.degrees[number], index)
    scaled = weights * (2 * passed_on) / node("Sqrt", node("Max", total, TINY) * degree)
    left = node("Gather", reference.arrived[number], index)  # (B, k, N + 1)
    z = reduced("Sum", node("Unsqueeze", scaled, [2]) * left, 1)
    return node("Log", z + SMALLEST) * 0.25
