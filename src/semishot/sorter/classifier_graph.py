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
from semishot.sorter.encoders.graph_builder import TYPES, OnnxGraph, Shape

OUTPUTS = ["label", "probabilities", "stranger_probability"]


def output_types(classifier: PrototypeClassifier) -> dict[str, tuple[str, Shape]]:
    one, many = ("batch",), ("batch", len(classifier.classes_))
    shapes = (("int64", one), ("float32", many), ("float32", one))
    return dict(zip(OUTPUTS, shapes, strict=True))


def draw_classifier(graph: OnnxGraph, classifier: PrototypeClassifier, features: str) -> None:
    """Add the nodes from features (B, D) to `OUTPUTS`."""
    model, nodes = classifier.fitted_.learned.model, Nodes(graph)
    rule = classifier.fitted_.learned.rule
    logits, log_odds = nodes.rule(rule, features)  # (B, N), (B,)
    if isinstance(model, PrototypeModel):
        rows = nodes.directions(model.space, features)
        logits = nodes("Neg", nodes.distances(rows, model.prototypes))
    probabilities = nodes("Softmax", logits, axis=-1, output=OUTPUTS[1])
    stranger = nodes("Sigmoid", log_odds, output=OUTPUTS[2])
    best = nodes("ArgMax", probabilities, axis=-1, keepdims=0)
    if classifier.reject is None:
        nodes("Identity", best, output=OUTPUTS[0])
        return
    cutoff: Any = classifier.cutoff_
    if cutoff is None:  # more probable than any class
        member = nodes("Sub", 1.0, stranger)
        cutoff = nodes("Mul", member, nodes("ReduceMax", probabilities, [-1], keepdims=0))
    rejected = nodes("Greater", stranger, cutoff)
    nodes("Where", rejected, graph.constant(UNLABELED, np.int64), best, output=OUTPUTS[0])


class Nodes:
    """Adds nodes to a graph: calling it is `OnnxGraph.add`."""

    def __init__(self, graph: OnnxGraph) -> None:
        self.graph = graph

    def __call__(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        return self.graph.add(operator, *inputs, **attributes)

    def column(self, x: str, first: int, last: int | None = None) -> str:
        """Columns first to last - 1 of (B, ...): one by default."""
        return self("Slice", x, [first], [first + 1 if last is None else last], [1])

    def largest(self, x: str, count: int, axis: int = -1) -> tuple[str, str]:
        """The largest values along an axis, and where they are."""
        names = [f"{x}_largest", f"{x}_places"]
        largest, places = self.graph.add_several("TopK", [x, [count]], names, axis=axis)
        return largest, places

    def joined(self, *parts: str) -> str:
        """Side by side, in the last axis."""
        return parts[0] if len(parts) == 1 else self("Concat", *parts, axis=-1)

    def unit(self, x: str) -> str:
        """Rows of length 1."""
        length = self("ReduceL2", x, [-1], keepdims=1)
        return self("Div", x, self("Max", length, np.finfo(np.float32).tiny))

    def distances(self, x: str, others: Array) -> str:
        """Squared distances (B, N) of rows (B, D) to others (N, D)."""
        apart = self("Sub", self("Unsqueeze", x, [1]), others[None])
        return self("ReduceSumSquare", apart, [-1], keepdims=0)

    def directions(self, space: Normalized, x: str) -> str:
        """Features (B, D) where a refiner compares them."""
        if space.normalization == "centered":
            x = self("Sub", self.unit(x), space.center)
        if space.normalization != "none":
            x = self.unit(x)
        return self("Div", x, space.length)

    def place(self, space: Space, x: str) -> tuple[str, str]:
        """Features (B, D) in the space of the rule, and their directions before centering."""
        scaled = self("Div", self("Sub", x, space.shift), space.scale)
        directions = self.unit(scaled)
        parts = []
        if space.by_cosine > 0:
            centered = self.unit(self("Sub", directions, space.center))
            parts.append(self("Mul", centered, space.by_cosine**0.5))
        if space.by_cosine < 1:
            narrow = self("Div", scaled, space.width)
            kernel = self("Exp", self("Mul", self.distances(narrow, space.pivots), -0.5))
            along = self("MatMul", kernel, space.mix.T)
            rest = self("Sub", 1.0, self("ReduceSumSquare", along, [-1], keepdims=1))
            lifted = self.joined(along, self("Sqrt", self("Relu", rest)))
            parts.append(self("Mul", lifted, (1 - space.by_cosine) ** 0.5))
        return self.joined(*parts), directions

    def rule(self, model: RuleModel, features: str) -> tuple[str, str]:
        """Logits of classes (B, N), and log-odds of a stranger (B,)."""
        pairs, rows = self.statistics(model.reference, *self.place(model.space, features))
        w, shared = learned_rule().weights, model.shared
        scaled = self._standardized(rows, shared.row_center, shared.row_spread)
        of_row = self("Add", self("MatMul", self.joined(rows, scaled), w["row"]), shared.first)
        scaled = self._standardized(pairs, shared.center, shared.spread)
        apart = self("Sub", pairs, self._best_other(pairs, model.reference.labels.shape[1]))
        linear = self("MatMul", self.joined(pairs, apart, scaled), w["pair"])
        h = self("Relu", self("Add", linear, self("Unsqueeze", of_row, [1])))  # (B, N, W)
        across = self("MatMul", self._pooled(h, "ReduceMean", "ReduceMax"), w["across"])
        linear = self("Add", self("MatMul", h, w["own"]), self("Unsqueeze", across, [1]))
        h = self("Relu", self("Add", linear, shared.second))
        hidden = self("MatMul", self._pooled(h, "ReduceMax", "ReduceMean"), w["stranger.1"])
        hidden = self("Relu", self("Add", hidden, w["stranger.1.bias"]))
        log_odds = self("Add", self("MatMul", hidden, w["stranger.2"]), w["stranger.2.bias"])
        return self("Squeeze", self("MatMul", h, w["logit"]), [2]), self("Squeeze", log_odds, [1])

    def _pooled(self, h: str, *ways: str) -> str:
        """(B, N, W) -> (B, 2 W)."""
        return self.joined(*(self(way, h, [1], keepdims=0) for way in ways))

    def _standardized(self, values: str, center: Array, spread: Array) -> str:
        scaled = self("Div", self("Sub", values, center), spread + SMALLEST_SPREAD)
        return self("Clip", scaled, -5.0, 5.0)

    def _best_other(self, pairs: str, classes: int) -> str:
        """(B, N, A) -> (B, N, A)."""
        if classes == 1:
            return pairs
        best, _ = self.largest(pairs, 2, axis=1)
        first, second = self.column(best, 0), self.column(best, 1)
        return self("Where", self("Equal", pairs, first), second, first)

    def statistics(self, reference: Reference, x: str, directions: str) -> tuple[str, str]:
        """Numbers of each row and class (B, N, 10), and of each row (B, 10)."""
        rows = reference.rows
        cosines = self("MatMul", x, rows.T)  # (B, L)
        near = self("Cast", self("Greater", cosines, reference.same), to=TYPES["float32"])
        closest = self("ArgMax", cosines, axis=-1, keepdims=0)
        same = self("ReduceMax", cosines, [-1], keepdims=1)
        copied = self("Cast", self("Greater", same, reference.same), to=TYPES["float32"])  # (B, 1)
        others = self("Mul", cosines, self("Sub", 1.0, near))
        count = min(NEIGHBOURS, max(len(rows) - 1, 1))
        nearest, index = self.largest(others, count)
        pairs = []
        for sums, weights in zip(reference.sums, reference.weights, strict=True):
            along = self("MatMul", x, sums.T)  # (B, N)
            own = self("Mul", self("Gather", weights, closest), copied)
            squares = self("Sub", (sums**2).sum(1), self("Mul", self("Mul", own, 2.0), along))
            squares = self("Add", squares, self("Mul", own, own))
            there = self("Cast", self("Greater", squares, 1e-9), to=TYPES["float32"])
            cosine = self("Sub", along, self("Mul", own, same))
            cosine = self("Div", cosine, self("Sqrt", self("Max", squares, TINY)))
            pairs.append(self("Mul", self("Clip", cosine, -1.0, 1.0), there))
        best = self._nearest_labels(x, reference)  # (B, N + 1)
        weights = self("Pow", self("Relu", nearest), float(EDGE_POWER))  # (B, k)
        arrived = [
            self._arriving(weights, index, reference, number) for number in range(len(WALKS))
        ]
        classes = reference.labels.shape[1]
        pairs += [self.column(each, 0, classes) for each in (best, *arrived)]
        pairs.append(self("MatMul", directions, reference.by_direction.T))
        pairs.append(self("MatMul", x, reference.names.T))
        single = [self.column(nearest, min(place, count - 1)) for place in (0, 2, 6, 14)]
        weights = self("Add", weights, TINY)
        total = self("ReduceSum", weights, [-1], keepdims=1)
        for values in reference.around:
            around = self("Mul", weights, self("Gather", values, index))
            single.append(self("Div", self("ReduceSum", around, [-1], keepdims=1), total))
        single += [self.column(each, classes) for each in (*arrived[1:], best)]
        stacked = [self("Unsqueeze", each, [2]) for each in pairs]
        return self("Concat", *stacked, axis=2), self.joined(*single)

    def _nearest_labels(self, x: str, reference: Reference) -> str:
        """The largest cosines (B, N + 1) with a label of each class, 0 if it has none, and with a named
        stranger."""
        labels = reference.labels
        of_kind = np.column_stack([labels > 0, labels.sum(1) == 0]).T  # (N + 1, S)
        of_kind = np.pad(of_kind, [(0, 0), (0, 1)])  # so that there is one
        labeled = np.pad(reference.labeled, [(0, 1), (0, 0)])
        along = self("Unsqueeze", self("MatMul", x, labeled.T), [1])  # (B, 1, S + 1)
        nearest = self("ReduceMax", self("Add", along, np.where(of_kind, 0, -4)), [2], keepdims=0)
        none = np.append(np.zeros(labels.shape[1]), NO_NAMED_STRANGER)
        given = of_kind.any(1)
        return self("Add", self("Mul", nearest, given), np.where(given, 0, none))

    def _arriving(self, weights: str, index: str, reference: Reference, number: int) -> str:
        """Weights of edges (B, k) and their ends -> the log of what arrives (B, N + 1), over 4."""
        count, passed_on, _ = WALKS[number]
        weights, index = self.column(weights, 0, count), self.column(index, 0, count)
        total = self("Mul", self("ReduceSum", weights, [-1], keepdims=1), 2.0)
        degree = self("Gather", reference.degrees[number], index)
        root = self("Sqrt", self("Mul", self("Max", total, TINY), degree))
        scaled = self("Div", self("Mul", weights, 2 * passed_on), root)
        left = self("Gather", reference.arrived[number], index)  # (B, k, N + 1)
        z = self("ReduceSum", self("Mul", self("Unsqueeze", scaled, [2]), left), [1], keepdims=0)
        return self("Mul", self("Log", self("Add", z, SMALLEST)), 0.25)
