"""What a user could do instead: rivals of the rule, each a plain function written from its description.

Each takes features (M, D) and labels (M,), -1 for the pile, and returns for the pile's U rows
probabilities (U, N) and a score (U,) that is high for strangers.
Letters: M rows, S of them labeled, U in the pile, N classes, D features.
"""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading

from semishot import PrototypeClassifier

Array = NDArray[Any]
Answer = tuple[Array, Array]


def unit(x: Array) -> Array:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


def centered(x: Array) -> Array:
    """Directions seen from the mean of the task's directions."""
    x = unit(x)
    return unit(x - x.mean(0))


def one_hot(labels: Array) -> Array:
    """(M,) -> (M, N), rows of zeros for the pile."""
    return (labels[:, None] == np.arange(labels.max() + 1)).astype(float)


def nearest_prototype(features: Array, labels: Array) -> Answer:
    """Centered, cosine, scale 10."""
    x, y = centered(features), one_hot(labels)
    cosines = x[labels < 0] @ unit(y.T @ x).T  # (U, N)
    return softmax(10 * cosines, 1), -cosines.max(1)


def logistic_regression(features: Array, labels: Array) -> Answer:
    x = centered(features)
    found = LogisticRegression(C=10, max_iter=200).fit(x[labels >= 0], labels[labels >= 0])
    p = found.predict_proba(x[labels < 0])
    return p, -p.max(1)


def label_spreading(features: Array, labels: Array) -> Answer:
    """scikit-learn's, on a graph of 7 neighbours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows that no label reaches
        found = LabelSpreading(kernel="knn", n_neighbors=7).fit(centered(features), labels)
    p = np.nan_to_num(found.label_distributions_[labels < 0])
    return p + (p.sum(1, keepdims=True) == 0) / p.shape[1], -p.max(1)


def oslo(features: Array, labels: Array) -> Answer:
    """Open-set likelihood maximisation, two rounds."""
    x, y = centered(features), one_hot(labels)
    pile, support = x[labels < 0], x[labels >= 0]
    y = y[labels >= 0]
    w, z = (
        unit((y.T @ support) / y.sum(0)[:, None]),
        np.full((len(pile), y.shape[1]), 1 / y.shape[1]),
    )
    for _ in range(2):
        cosines = pile @ w.T  # (U, N)
        member = expit((z * cosines).sum(1) / 0.05)  # (U,)
        z = softmax(member[:, None] * cosines / 0.1, 1)
        share = member[:, None] * z
        w = unit((y.T @ support + share.T @ pile) / (y.sum(0) + share.sum(0))[:, None])
    return softmax(pile @ w.T / 0.1, 1), 1 - member


def label_propagation(features: Array, labels: Array) -> Answer:
    """15 neighbours, cos^3, a = 0.8; the raw maximum tells members."""
    x, y = centered(features), one_hot(labels)
    weights = x @ x.T
    np.fill_diagonal(weights, -1)
    k = min(15, len(x) - 1)
    near = np.argpartition(-weights, k - 1, 1)[:, :k]  # (M, k)
    graph = np.zeros_like(weights, float)
    np.put_along_axis(graph, near, np.take_along_axis(weights, near, 1).clip(0) ** 3.0, 1)
    graph = graph + graph.T
    scale = 1 / np.sqrt(np.maximum(graph.sum(1), 1e-12))
    z = np.linalg.solve(np.eye(len(x)) - 0.8 * scale[:, None] * graph * scale, y)[labels < 0]
    total = z.sum(1, keepdims=True)
    return np.where(total > 0, z / np.maximum(total, 1e-300), 1 / y.shape[1]), -z.max(1)


def soft_kmeans(features: Array, labels: Array) -> Answer:
    """Five steps at scale 12: what a pile without strangers asks for."""
    x, y = centered(features), one_hot(labels)
    pile, weights = labels < 0, one_hot(labels)
    for _ in range(5):
        w = unit(weights.T @ x)
        weights = y + pile[:, None] * softmax(12 * x @ w.T, 1)
    cosines = x[pile] @ unit(weights.T @ x).T
    return softmax(12 * cosines, 1), -cosines.max(1)


def pt_map(features: Array, labels: Array) -> Answer:
    """20 rounds of Sinkhorn with equal class sizes. Features must not be negative."""
    x, y = centered((features.clip(0) + 1e-6) ** 0.5), one_hot(labels)
    pile, support, y = x[labels < 0], x[labels >= 0], y[labels >= 0]
    w = (y.T @ support) / y.sum(0)[:, None]
    for _ in range(20):
        p = sinkhorn(np.exp(-10 * squared(pile, w)), len(pile) / len(w))
        w += 0.2 * ((y.T @ support + p.T @ pile) / (y.sum(0) + p.sum(0))[:, None] - w)
    return p, squared(pile, w).min(1)


def squared(x: Array, w: Array) -> Array:
    return (x**2).sum(1)[:, None] + (w**2).sum(1) - 2 * x @ w.T


def sinkhorn(p: Array, size: float) -> Array:
    """(U, N) -> (U, N), rows that sum to 1 and columns that sum to `size`, to six digits."""
    for _ in range(100):
        columns = size / p.sum(0)
        p = p * columns
        p = p / p.sum(1, keepdims=True)
        if np.abs(columns - 1).max() < 1e-6:
            break
    return p


def version_0_1(features: Array, labels: Array, reject: float = 0.05) -> Answer:
    """The default of version 0.1. Rows it rejects score above 1 - reject."""
    found = PrototypeClassifier("fitted_mask", reject=reject).fit(features, labels)
    pile = features[labels < 0]
    return found.predict_proba(pile), found.distractor_score(pile)


RIVALS = {
    "nearest prototype": nearest_prototype,
    "logistic regression": logistic_regression,
    "LabelSpreading": label_spreading,
    "OSLO": oslo,
    "label propagation": label_propagation,
    "soft k-means": soft_kmeans,
    "PT-MAP": pt_map,
    "version 0.1": version_0_1,
}
ASSUME_BALANCE = ("PT-MAP",)
