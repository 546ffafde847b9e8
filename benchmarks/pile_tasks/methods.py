"""What sorts a pile: PrototypeClassifier and what a user could do instead, each written from its description.

A method takes features (M, D) and labels (M,), -1 in the pile and 0 to N - 1 elsewhere, and returns an
`Answer` for the P rows of the pile. To add one, write a file with such a function: see `piles.py --method`.
Letters: M rows, S of them labeled, P in the pile, N classes, D features.
"""

import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.special import expit, softmax
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

Array = NDArray[Any]
REJECT = 0.05
OURS, NEW_ROWS, BEFORE = "semishot", "semishot, new rows", "semishot, before"
TOLD = (OURS, NEW_ROWS, BEFORE)
"""They get features as they are, and named strangers, -2."""


@dataclass(frozen=True)
class Answer:
    """Give `stranger` or `score`. What is left out follows from the probabilities."""

    classes: Array
    """(P, N): the probability of each class, given that the row belongs to one."""
    stranger: Array | None = None
    """(P,): the probability that it belongs to none."""
    score: Array | None = None
    """(P,): any number that is higher for strangers."""
    out: Array | None = None
    """(P,): whether the method takes the row for a stranger; else if that is the most probable."""
    lost: Array | None = None
    """(P,): the same where 5 % of the members may be lost."""
    count: tuple[float, float, float] | None = None
    """How many strangers: expected, and from where to where with 90 %."""


Method = Callable[[Array, Array], Answer]


def unit(x: Array) -> Array:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


def centered(x: Array) -> Array:
    """Directions seen from the mean of the task's directions; rows themselves where they are short."""
    if x.shape[1] < 16:
        return x - x.mean(0)
    x = unit(x)
    return unit(x - x.mean(0))


def likeness(x: Array, w: Array) -> Array:
    """(M, D), (N, D) -> (M, N): the cosine; in few dimensions 1 - half a squared distance, scaled."""
    if x.shape[1] >= 16:
        return x @ unit(w).T
    squared = (x**2).sum(1)[:, None] + (w**2).sum(1) - 2 * x @ w.T
    return 1 - squared / max(2 * (x**2).sum(1).mean(), 1e-12)


def one_hot(labels: Array) -> Array:
    """(M,) -> (M, N), rows of zeros for the pile."""
    return (labels[:, None] == np.arange(labels.max() + 1)).astype(float)


def means(x: Array, weights: Array) -> Array:
    """(M, D), (M, N) -> (N, D)."""
    return weights.T @ x / np.maximum(weights.sum(0)[:, None], 1e-12)


def nearest_prototype(features: Array, labels: Array) -> Answer:
    """Centered, cosine, scale 10."""
    x = centered(features)
    near = likeness(x[labels < 0], means(x, one_hot(labels)))  # (P, N)
    return Answer(softmax(10 * near, 1), score=-near.max(1))


def logistic_regression(features: Array, labels: Array) -> Answer:
    x, few = centered(features), labels >= 0
    if labels.max() < 1:
        return Answer(np.ones(((~few).sum(), 1)), stranger=np.full((~few).sum(), 0.5))
    if few.sum() < x.shape[1]:  # coefficients lie in the span of the labeled rows
        x = x @ np.linalg.qr(x[few].T)[0]
    p = LogisticRegression(C=10, max_iter=200).fit(x[few], labels[few]).predict_proba(x[~few])
    return Answer(p, score=-p.max(1))


def self_training(features: Array, labels: Array) -> Answer:
    """scikit-learn's, around logistic regression, on 100 principal components."""
    x = centered(features)
    x = PCA(min(100, *x.shape), random_state=0).fit_transform(x)
    if labels.max() < 1:
        return Answer(np.ones(((labels < 0).sum(), 1)), stranger=np.full((labels < 0).sum(), 0.5))
    found = SelfTrainingClassifier(LogisticRegression(C=10, max_iter=200)).fit(x, labels)
    p = found.predict_proba(x[labels < 0])
    return Answer(p, score=-p.max(1))


def nearest_labels(features: Array, labels: Array) -> Answer:
    """By the likeness to the nearest labeled row of each class."""
    x = centered(features)
    own = [likeness(x[labels < 0], x[labels == n]).max(1) for n in range(labels.max() + 1)]
    near = np.stack(own, 1)  # (P, N)
    return Answer(softmax(10 * near, 1), score=-near.max(1))


def mahalanobis(features: Array, labels: Array) -> Answer:
    """By the covariance of labeled rows within their classes, shrunk as Ledoit and Wolf do."""
    x, few = centered(features).astype(float), labels >= 0
    w = means(x, one_hot(labels))
    rest = x[few] - w[labels[few]]  # (S, D)
    shrinkage = ledoit_wolf_shrinkage(rest, assume_centered=True)
    ridge = shrinkage * (rest**2).mean()
    if ridge > 1e-9:  # Woodbury: (ridge + u'u)^-1 = (1 - u'(ridge + uu')^-1 u) / ridge
        u = rest * np.sqrt((1 - shrinkage) / few.sum())
        values, vectors = np.linalg.eigh(u @ u.T)
        along = vectors.T @ u  # (S, D): (ridge + u'u)^-1/2 = (1 - along' gain along) / ridge^1/2
        kept = values > 1e-12
        gain = (1 - np.sqrt(ridge / (ridge + values[kept]))) / values[kept]
        x, w = ((r - (r @ along[kept].T * gain) @ along[kept]) / np.sqrt(ridge) for r in (x, w))
    pile = x[~few]
    d = (pile**2).sum(1)[:, None] + (w**2).sum(1) - 2 * pile @ w.T
    return Answer(softmax(-d / 2, 1), score=d.min(1))


def neighbours(x: Array, k: int) -> tuple[Array, Array]:
    """(M, D) -> indices and likeness (M, k) of the nearest other rows."""
    k = min(k, len(x) - 1)
    found = []
    for start in range(0, len(x), 1000):
        near = likeness(x[start : start + 1000], x)
        near[np.arange(len(near)), start + np.arange(len(near))] = -np.inf
        best = np.argpartition(-near, k - 1, 1)[:, :k]
        found.append((best, np.take_along_axis(near, best, 1)))
    return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])


def label_propagation(features: Array, labels: Array) -> Answer:
    """As in iLPC: 15 neighbours, likeness^3, a = 0.8; the raw maximum tells members."""
    x, y = centered(features), one_hot(labels)
    rows, near = neighbours(x, 15)
    places = np.repeat(np.arange(len(x)), rows.shape[1]), rows.ravel()
    graph = csr_array(coo_array((near.ravel().clip(0) ** 3.0, places), shape=(len(x), len(x))))
    graph = graph + graph.T
    scale = diags_array(1 / np.sqrt(np.maximum(graph.sum(1), 1e-12)))
    graph, z = scale @ graph @ scale, y
    for _ in range(80):
        z = 0.8 * (graph @ z) + y
    z = z[labels < 0] + 1e-9
    return Answer(z / z.sum(1, keepdims=True), score=-np.log(z.max(1)))


def label_spreading(features: Array, labels: Array) -> Answer:
    """scikit-learn's, on a graph of 7 neighbours."""
    found = LabelSpreading(kernel="knn", n_neighbors=7).fit(centered(features), labels)
    p = np.nan_to_num(found.label_distributions_[labels < 0])  # rows that no label reaches
    return Answer(p + (p.sum(1, keepdims=True) == 0) / p.shape[1], score=-p.max(1))


def oslo(features: Array, labels: Array) -> Answer:
    """Open-set likelihood maximisation, two rounds."""
    x, y = centered(features), one_hot(labels)
    pile, support, y = x[labels < 0], x[labels >= 0], y[labels >= 0]
    w, z = means(support, y), np.full((len(pile), y.shape[1]), 1 / y.shape[1])
    for _ in range(2):
        near = likeness(pile, w)  # (P, N)
        member = expit((z * near).sum(1) / 0.05)  # (P,)
        z = softmax(member[:, None] * near / 0.1, 1)
        w = means(np.concatenate([support, pile]), np.concatenate([y, member[:, None] * z]))
    return Answer(softmax(likeness(pile, w) / 0.1, 1), stranger=1 - member)


def soft_kmeans(features: Array, labels: Array) -> Answer:
    """Five steps at scale 12: what a pile without strangers asks for."""
    x, y = centered(features), one_hot(labels)
    pile, weights = labels < 0, y
    for _ in range(5):
        weights = y + pile[:, None] * softmax(12 * likeness(x, means(x, weights)), 1)
    near = likeness(x[pile], means(x, weights))
    return Answer(softmax(12 * near, 1), score=-near.max(1))


def semishot(features: Array, labels: Array) -> Answer:
    from semishot import PrototypeClassifier

    pile = labels == -1
    fitted = PrototypeClassifier(reject="auto").fit(features, labels)
    cutoff = fitted.fitted_.learned.cutoff(REJECT)
    return Answer(
        fitted.label_distributions_[pile],
        stranger=fitted.stranger_proba_[pile],
        out=fitted.transduction_[pile] == fitted.stranger_label_,
        lost=fitted.stranger_proba_[pile] > cutoff,
        count=fitted.n_strangers_,
    )


def semishot_on_new_rows(features: Array, labels: Array) -> Answer:
    """Each half of the pile by a model that has seen the other half alone."""
    from semishot import PrototypeClassifier

    pile = np.flatnonzero(labels == -1)
    halves = np.random.default_rng(len(pile)).permutation(len(pile)) % 2
    classes, stranger = np.empty((len(pile), labels.max() + 1)), np.full(len(pile), 0.5)
    out = np.zeros(len(pile), bool)
    for half in (0, 1):
        new = pile[halves == half]
        kept = np.setdiff1d(np.arange(len(labels)), new)
        fitted = PrototypeClassifier(reject="auto").fit(features[kept], labels[kept])
        classes[halves == half] = fitted.predict_proba(features[new])
        stranger[halves == half] = fitted.stranger_proba(features[new])
        out[halves == half] = fitted.predict(features[new]) == fitted.stranger_label_
    return Answer(classes, stranger=stranger, out=out)


RIVALS: dict[str, Method] = {
    "nearest prototype": nearest_prototype,
    "logistic regression": logistic_regression,
    "nearest labels": nearest_labels,
    "Mahalanobis": mahalanobis,
    "label propagation": label_propagation,
    "LabelSpreading": label_spreading,
    "SelfTraining": self_training,
    "OSLO": oslo,
    "soft k-means": soft_kmeans,
}


class Before:
    """PrototypeClassifier of another version of semishot, in a process of its own.

    path: the folder that holds its `semishot/`, such as `src` of a checkout or an unpacked wheel.
    """

    def __init__(self, path: Path) -> None:
        if not (path / "semishot").is_dir():
            raise SystemExit(f"no semishot/ in {path}")
        folders = os.pathsep.join([str(path.resolve()), str(Path(__file__).parents[1])])
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "pile_tasks.methods"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": folders, "OMP_NUM_THREADS": "1"},
        )
        self(np.array([[0.0], [1.0], [0.1]]), np.array([0, 1, -1]))  # its imports are not timed

    def __call__(self, features: Array, labels: Array) -> Answer:
        assert self.process.stdin
        assert self.process.stdout
        pickle.dump((features, labels), self.process.stdin)
        self.process.stdin.flush()
        return Answer(**pickle.load(self.process.stdout))


def as_it_was(features: Array, labels: Array) -> Answer:
    """By version 0.2, as its commands decided."""
    from semishot import PrototypeClassifier
    from semishot.errors import InputError

    pile = labels == -1
    try:
        fitted = PrototypeClassifier(reject=REJECT).fit(features, labels)
        out = fitted.transduction_[pile] == fitted.stranger_label_
    except InputError:  # nothing tells how members score
        fitted, out = PrototypeClassifier().fit(features, labels), np.zeros(pile.sum(), bool)
    return Answer(
        fitted.label_distributions_[pile],
        stranger=np.nan_to_num(fitted.stranger_proba_[pile], nan=0.5),
        out=out,
        lost=out,
        count=tuple(fitted.n_strangers_) if fitted.n_strangers_ else None,
    )


def answer_requests() -> None:
    while True:
        try:
            features, labels = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(vars(as_it_was(features, labels)), sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    answer_requests()
