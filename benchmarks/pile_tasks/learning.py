"""Tasks as the learned rule sees them: statistics of many piles, on disk."""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pile_tasks.domains import Domain, domains
from pile_tasks.made_up import made_up
from pile_tasks.tasks import Task, draw, random_shape, varied_features
from semishot.estimator.neighbours import find_near, neighbour_graph
from semishot.estimator.spaces import fit_space, unit
from semishot.estimator.statistics import Known, Statistics, Support

Array = NDArray[Any]
Seen = dict[str, Array]
ASKED, HELD_OUT = 256, 64
MADE_UP = 0.2
"""The share of tasks whose features are made up."""
OFTEN = {"photographs": 2.0, "drawings": 2.5, "text": 1.5, "pixels": 0.5}
"""How often kinds of features are drawn, relative to others."""


def names_of(x: Array, truth: Array, count: int, rng: np.random.Generator) -> Array:
    """What encoders of text would make of the classes' names: their means, noisy and shifted together."""
    means = np.stack(
        [
            x[truth == label].mean(0) if (truth == label).any() else 0 * x[0]
            for label in range(count)
        ]
    )
    means = unit(means)
    noise = unit(rng.normal(size=means.shape)) * rng.choice([0.4, 0.8, 1.5, 3.0])
    shift = unit(rng.normal(size=means.shape[1])) * rng.uniform(0, 1)
    return unit(means + noise + shift).astype(x.dtype)


def seen(task: Task, rng: np.random.Generator) -> Seen:
    """Statistics of all rows that have no label, where the new ones are beside the graph."""
    inside = np.flatnonzero(~task.new)
    features, labels = task.features, task.labels
    count = int(max(task.truth.max(initial=0), labels.max(initial=0))) + 1
    unlabeled = labels[inside] == -1
    space = fit_space(features[inside], "auto", unlabeled)
    most = None
    if rng.random() < 0.2:
        most = int(rng.integers(len(inside) // 3 + 2, len(inside) + 3))
    graph = neighbour_graph(features[inside], space, most)
    x, directions = space(features), space.directions(features)
    near = find_near(x, graph.rows, graph.same)
    names = names_of(x, task.truth, count, rng) if rng.random() < 0.25 else None
    given = np.flatnonzero(labels != -1)
    if names is not None and rng.random() < 0.35:
        given = given[labels[given] == -2]  # names before labels
    weights = (labels[given][:, None] == np.arange(count)).astype(float)
    support = Support(near.take(given), x[given], directions[given], weights, labels[given] == -2)
    known = Known(graph, support, names)
    own = inside[graph.sources[known.context]]
    context = known.reference.statistics(x[own], directions[own], near.take(own))
    asked = np.flatnonzero(labels == -1)
    if len(asked) > ASKED:
        asked = np.sort(rng.choice(asked, ASKED, replace=False))
    of_rows = known.reference.statistics(x[asked], directions[asked], near.take(asked))
    held_out, rows = known.held_out()
    some = rng.permutation(len(rows))[:HELD_OUT]
    return {
        **_packed("", of_rows),
        **_packed("context_", context),
        **_packed("held_", held_out.take(some)),
        "held_class": labels[given][rows[some]].astype(np.int16),
        "held_truth": task.truth[given][rows[some]].astype(np.int16),
        "pile": known.of_pile(context, int(unlabeled.sum())),
        "truth": task.truth[asked].astype(np.int16),
        "new": task.new[asked],
    }


def _packed(name: str, of_rows: Statistics) -> Seen:
    return {
        f"{name}pairs": of_rows.pairs.astype(np.float16),
        f"{name}rows": of_rows.rows.astype(np.float16),
    }


def random_task(sources: list[Domain], rng: np.random.Generator) -> Task:
    often = np.array([OFTEN[source.kind] for source in sources])
    source = sources[rng.choice(len(sources), p=often / often.sum())]
    source = made_up(rng) if rng.random() < MADE_UP else source
    task = draw(
        source,
        random_shape(source, rng),
        rng,
        new=rng.choice([0.0, 0.2, 0.5, 1.0], p=[0.33, 0.29, 0.26, 0.12]),
    )
    return task.varied(varied_features(task.features, rng))


def main() -> None:
    folder, out, part, first, count = (
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        sys.argv[3],
        int(sys.argv[4]),
        int(sys.argv[5]),
    )
    out.mkdir(parents=True, exist_ok=True)
    sources = domains(folder, part)
    begun = time.time()
    with threadpool_limits(1):
        for number in range(first, first + count):
            rng = np.random.default_rng([number, {"learn": 0, "choose": 1, "report": 2}[part]])
            while True:
                task = random_task(sources, rng)
                if ((task.labels == -1) & (task.truth >= -1)).any() and (task.labels >= 0).any():
                    break
            np.savez(out / f"{part}-{number}.npz", **seen(task, rng))
            if number % 200 == 0:
                print(part, number, round(time.time() - begun), flush=True)


if __name__ == "__main__":
    main()
