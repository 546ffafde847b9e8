"""Features of many made-up kinds, for learning: what a rule may meet besides photographs.

Letters: M rows, D features, L latent numbers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pile_tasks.domains import Domain

Array = NDArray[Any]
Rng = np.random.Generator


def made_up(rng: Rng) -> Domain:
    """A few to many classes of one kind, and strangers around, between or beside them."""
    kinds = int(rng.integers(2, 16))
    size = int(min(120 if rng.random() < 0.5 else rng.integers(120, 700), 2400 // kinds))
    maker = STYLES[rng.choice(list(STYLES), p=SHARES)]
    classes = maker(kinds, size, rng)
    if rng.random() < 0.25 and maker is not topics:  # features of unequal scale
        scale = np.exp(rng.normal(size=classes[0].shape[1]) * 2)
        classes = [rows * scale for rows in classes]
    every = np.concatenate(classes)
    low, high = np.quantile(every, 0.01, 0), np.quantile(every, 0.99, 0)
    scattered = rng.uniform(low, high, (300, len(low)))
    middle = every[rng.integers(len(every))] * rng.uniform(0, 1.5)  # a spot anywhere
    spot = middle + rng.normal(size=(300, len(low))) * every.std(0) * rng.uniform(0.05, 0.4)
    others = [each for each in (scattered, spot) if rng.random() < 0.7]
    single = [[rows.astype(np.float32) for rows in each] for each in (classes, others)]
    return Domain("made up", *single, "tables")


def few_or_many(rng: Rng, low: int = 2, high: int = 64) -> int:
    return int(np.exp(rng.uniform(np.log(low), np.log(high))))


def blobs(kinds: int, size: int, rng: Rng) -> list[Array]:
    """Normal, stretched or heavy-tailed, each class one blob or several."""
    dimensions, apart = few_or_many(rng), rng.uniform(1.2, 6)
    style = rng.choice(["normal", "stretched", "heavy"])
    parts = int(rng.integers(2, 5)) if rng.random() < 0.3 else 1
    classes = []
    for _ in range(kinds):
        centers = rng.normal(size=(parts, dimensions)) * apart / dimensions**0.25
        rows = rng.normal(size=(size, dimensions))
        if style == "stretched":
            rows = rows @ (rng.normal(size=(dimensions, dimensions)) * rng.gamma(1, 1, dimensions))
            rows *= 0.7 / max(rows.std(), 1e-6)
        if style == "heavy":
            rows *= rng.standard_t(2.5, size=(size, 1))
        classes.append(centers[rng.integers(parts, size=size)] + rows * rng.uniform(0.6, 1.4))
    return classes


def curves(kinds: int, size: int, rng: Rng) -> list[Array]:
    """Smooth closed or open lines that wind around each other."""
    dimensions = int(rng.integers(2, 5)) if rng.random() < 0.75 else few_or_many(rng, 5)
    waves, noise, apart = np.arange(1, 4), rng.uniform(0.03, 0.25), rng.choice([0.1, 0.4, 1.0])
    classes = []
    for _ in range(kinds):
        steps = rng.uniform(size=(size, 1))
        phases = rng.uniform(0, 2 * np.pi, (dimensions, len(waves)))
        sizes = rng.normal(size=(dimensions, len(waves))) / waves ** rng.uniform(1, 3)
        turns = rng.uniform(2, 2 * np.pi) * steps[:, :, None] * waves + phases
        rows = (sizes * np.sin(turns)).sum(2) * rng.uniform(1, 3)
        rows += rng.normal(size=(size, dimensions)) * noise * rows.std()
        classes.append(rows + rng.normal(size=dimensions) * apart * rows.std() * 3)
    return classes


def network(rng: Rng, inputs: int, outputs: int) -> Callable[[Array], Array]:
    """A random smooth function: two layers."""
    width = 32
    first = rng.normal(size=(inputs, width)) * rng.uniform(0.5, 2) / inputs**0.5
    bias, second = rng.normal(size=width) * 0.5, rng.normal(size=(width, outputs)) / width**0.5
    positive = rng.random() < 0.4

    def bent(rows: Array) -> Array:
        out: Array = np.tanh(rows @ first + bias) @ second
        return np.maximum(out, 0) if positive else out

    return bent


def surfaces(kinds: int, size: int, rng: Rng) -> list[Array]:
    """Each class is a bent sheet of few latent numbers in more dimensions."""
    latent, outputs = int(rng.integers(1, 6)), few_or_many(rng, 3, 128)
    noise, apart = rng.uniform(0.02, 0.3), rng.uniform(0.1, 1.2)
    classes = []
    for _ in range(kinds):
        rows = network(rng, latent, outputs)(rng.normal(size=(size, latent)))
        rows += rng.normal(size=rows.shape) * noise * rows.std()
        classes.append(rows + rng.normal(size=outputs) * apart * rows.std())
    return classes


def encoded(kinds: int, size: int, rng: Rng) -> list[Array]:
    """Blobs of few latent numbers as one encoder sees them, well or badly."""
    latent, outputs = few_or_many(rng, 2, 24), few_or_many(rng, 16, 256)
    bent, noise, apart = network(rng, latent, outputs), rng.uniform(0, 0.6), rng.uniform(0.8, 4)
    classes = []
    for _ in range(kinds):
        center = rng.normal(size=latent) * apart
        rows = bent(center + rng.normal(size=(size, latent)) * rng.uniform(0.5, 1.5))
        classes.append(rows + rng.normal(size=rows.shape) * noise * rows.std())
    return classes


def topics(kinds: int, size: int, rng: Rng) -> list[Array]:
    """Counts of words, each class with words of its own, as TF-IDF."""
    words, own = few_or_many(rng, 100, 1200), rng.uniform(0.1, 0.7)
    usual = rng.dirichlet(1 / np.arange(1, words + 1) ** 0.7 + 1e-3)
    classes = []
    for _ in range(kinds):
        special = rng.dirichlet(np.full(words, rng.choice([0.02, 0.1])))
        rows = []
        for length in rng.integers(8, 80, size):
            share = np.clip(own * rng.uniform(0.3, 1.7), 0, 1)
            rows.append(rng.multinomial(length, share * special + (1 - share) * usual))
        classes.append(np.array(rows))
    every = np.concatenate(classes)
    rarity = np.log((1 + len(every)) / (1 + (every > 0).sum(0))) + 1
    tf_idf = [np.log1p(rows) * rarity for rows in classes]
    return [rows / np.maximum(np.linalg.norm(rows, axis=1), 1e-9)[:, None] for rows in tf_idf]


STYLES = {
    "blobs": blobs,
    "curves": curves,
    "surfaces": surfaces,
    "encoded": encoded,
    "topics": topics,
}
SHARES = (0.3, 0.3, 0.15, 0.15, 0.1)
