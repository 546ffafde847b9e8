"""Batched 1-NN and logistic regression against loops, scikit-learn and torch's own Adam."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from semishot.paper.table5 import adam_logistic_regression, logistic_regression, nearest_neighbor


def episodes(count: int, way: int, shot: int, query: int, size: int, scale: float = 1.0):
    """Support (E, S, D), labels (S,) and queries (E, Q, D) of classes that overlap."""
    generator = torch.Generator().manual_seed(count * size + shot)
    centers = torch.randn(count, way, 1, size, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, way, shot + query, size, generator=generator, dtype=torch.float64)
    examples = (centers + 1.5 * noise) * scale
    labels = torch.arange(way).repeat_interleave(shot)
    return examples[:, :, :shot].flatten(1, 2), labels, examples[:, :, shot:].flatten(1, 2)


def test_1nn_takes_the_label_of_the_nearest_support_image():
    support, labels, queries = episodes(4, 3, 2, 5, 7)
    predicted = nearest_neighbor(support, labels, queries)
    assert predicted.shape == (4, 15)
    for e in range(4):
        for q in range(15):
            gaps = [
                sum((a - b) ** 2 for a, b in zip(queries[e, q], s, strict=True)) for s in support[e]
            ]
            assert predicted[e, q] == labels[gaps.index(min(gaps))]
        model = KNeighborsClassifier(1).fit(support[e].numpy(), labels.numpy())
        assert np.array_equal(model.predict(queries[e].numpy()), predicted[e].numpy())


@pytest.mark.parametrize(
    ("shot", "size", "scale"), [(1, 9, 1.0), (5, 9, 1.0), (1, 40, 8.0), (5, 40, 1e-4), (2, 3, 1.0)]
)
def test_logistic_regression_is_scikit_learns(shot, size, scale):
    """More features than images and fewer, large and tiny: same scores, same predictions."""
    support, labels, queries = episodes(6, 4, shot, 3, size, scale)
    scores = logistic_regression(support, labels, queries)
    for e in range(len(support)):
        model = LogisticRegression(tol=1e-10, max_iter=10_000)
        theirs = model.fit(support[e].numpy(), labels.numpy()).decision_function(queries[e].numpy())
        assert np.array_equal(theirs.argmax(-1), scores[e].numpy().argmax(-1))
        assert abs(scores[e].numpy() - theirs).max() < 1e-3 * max(1, abs(theirs).max())


@pytest.mark.parametrize("rate", [1e-2, 1e-3])
def test_200_steps_of_adam_are_torchs(rate):
    support, labels, queries = episodes(3, 4, 2, 3, 5)
    scores = adam_logistic_regression(support, labels, queries, rate)
    for e in range(3):
        layer = torch.nn.Linear(5, 4, dtype=torch.float64)
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
        optimizer = torch.optim.Adam(layer.parameters(), lr=rate)
        for _ in range(200):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(layer(support[e]), labels).backward()
            optimizer.step()
        assert torch.allclose(scores[e], layer(queries[e]).detach(), atol=1e-9)
