"""A task: labels, a pile with or without strangers in it, and new rows; drawn from a domain.

Letters: M rows, N classes, D features.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pile_tasks.domains import Domain

Array = NDArray[Any]


@dataclass(frozen=True)
class Shape:
    """What a task looks like."""

    way: int
    shot: int
    pile: int
    """Rows of the pile, of which a share are strangers."""
    share: float = 0.0
    kinds: str = "few"
    """Strangers of few kinds, of many, or of another domain."""
    balanced: bool = True
    named: int = 0
    """Strangers that the user has named."""
    burst: int = 0
    """Near copies of one member in the pile."""
    wrong: float = 0.0
    """The share of labels that are wrong."""


@dataclass(frozen=True)
class Task:
    features: Array  # (M, D), in random order
    labels: Array  # (M,), -1 in the pile, -2 for named strangers
    truth: Array  # (M,), -1 for strangers
    new: Array  # (M,), rows that are not in the pile: the classifier sees them later
    shape: Shape

    @property
    def pile(self) -> Array:
        return (self.labels == -1) & ~self.new

    def varied(self, features: Array) -> "Task":
        return replace(self, features=features)


def draw(domain: Domain, shape: Shape, rng: np.random.Generator, new: float = 0.0) -> Task:
    """A share `new` of the pile's rows is held back as new rows."""
    classes = [rows for rows in domain.classes if len(rows) >= shape.shot + 2]
    order = rng.permutation(len(classes))
    way = min(shape.way, len(classes))
    members = round(shape.pile * (1 - shape.share))
    if shape.balanced:
        sizes = np.full(way, members // way) + (np.arange(way) < members % way)
    else:
        sizes = rng.multinomial(members, rng.dirichlet(np.full(way, 1.2)))
    rows, labels, truth = [], [], []

    def add(chosen: Array, label: int, true: int) -> None:
        rows.append(chosen)
        labels.extend([label] * len(chosen))
        truth.extend([true] * len(chosen))

    for number in range(way):
        own = classes[order[number]]
        own = own[rng.permutation(len(own))]
        add(own[: shape.shot], number, number)
        add(own[shape.shot :][: sizes[number]], -1, number)
        if shape.burst and number == 0:
            one = own[shape.shot : shape.shot + 1]
            noise = rng.normal(size=(shape.burst, own.shape[1])) * own.std(0)
            copies = one + noise * rng.uniform(0.05, 0.25)
            add(np.where(one == 0, 0, copies).astype(np.float32), -1, number)
    strangers = drawn_strangers(domain, classes, order[way:], shape, rng)
    add(strangers[: shape.named], -2, -1)
    add(strangers[shape.named :], -1, -1)
    features, given = np.concatenate(rows), np.array(labels)
    true = np.array(truth)
    wrong = np.flatnonzero(given >= 0)
    wrong = wrong[rng.random(len(wrong)) < shape.wrong]
    given[wrong] = (given[wrong] + rng.integers(1, max(way, 2), len(wrong))) % way
    shuffle = rng.permutation(len(given))
    features, given, true = features[shuffle], given[shuffle], true[shuffle]
    held_back = (given == -1) & (rng.random(len(given)) < new)
    return Task(features, given, true, held_back, shape)


def drawn_strangers(
    domain: Domain, classes: list[Array], left: Array, shape: Shape, rng: np.random.Generator
) -> Array:
    """In random order, those to be named first."""
    wanted = round(shape.pile * shape.share) + shape.named
    kinds = [classes[number] for number in left]
    if domain.others and (shape.kinds == "foreign" or not kinds):
        kinds = domain.others
    elif shape.kinds == "many" and domain.others:
        kinds = kinds + domain.others
    if not wanted or not kinds:
        return classes[0][:0]
    kinds = [kinds[index] for index in rng.permutation(len(kinds))]
    if shape.kinds == "few":
        enough = np.cumsum([len(kind) for kind in kinds]).searchsorted(wanted) + 1
        kinds = kinds[: max(int(rng.integers(1, 5)), int(enough))]
    pool = np.concatenate(kinds)
    return pool[rng.permutation(len(pool))[:wanted]]


def random_shape(domain: Domain, rng: np.random.Generator) -> Shape:
    """For learning: of any kind."""
    most = max(1, len(domain.classes) - (0 if domain.others else 1))
    way = min(most, int(np.exp(rng.uniform(np.log(2), np.log(50)))))
    way = 1 if rng.random() < 0.12 else way
    each = np.exp(rng.uniform(np.log(1.5), np.log(40)))
    share = 0.0 if rng.random() < 0.3 else float(0.03 + 0.82 * rng.random() ** 1.3)
    share = 1.0 if rng.random() < 0.03 else share
    pile = int(np.clip(way * each / max(1 - share, 0.15), 8, 1200))
    return Shape(
        way=way,
        shot=int(rng.choice([1, 1, 1, 2, 3, 3, 4, 5, 6, 8, 10])),
        pile=pile,
        share=share,
        kinds=str(rng.choice(["few", "few", "many", "many", "foreign"])),
        balanced=bool(rng.random() < 0.4),
        named=int(rng.integers(1, 21)) if rng.random() < 0.25 else 0,
        burst=int(rng.integers(5, 51)) if rng.random() < 0.12 else 0,
        wrong=float(rng.choice([0.05, 0.1, 0.2])) if rng.random() < 0.1 else 0.0,
    )


def varied_features(features: Array, rng: np.random.Generator) -> Array:
    """As another encoder might have made them: projected, bent, noisy, or unchanged."""
    choice = rng.random()
    if choice < 0.45 or features.shape[1] < 16:
        return features
    if choice < 0.65:
        size = int(np.exp(rng.uniform(np.log(16), np.log(512))))
        mix = rng.normal(size=(features.shape[1], size)) / features.shape[1] ** 0.5
        found = features @ mix.astype(np.float32)
        return np.maximum(found, 0) if rng.random() < 0.3 else found
    if choice < 0.8:
        power = rng.uniform(0.4, 1.6)
        return (np.sign(features) * np.abs(features) ** power).astype(np.float32)
    noise = rng.normal(size=features.shape) * features.std(0) * rng.uniform(0.2, 1.2)
    return (features + noise).astype(np.float32)
