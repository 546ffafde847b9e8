"""Table 5's classifiers: all episodes at once, against one scikit-learn fit per episode."""

from collections.abc import Callable
from typing import Any

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from measurement import command, result, time_in_turns
from semishot.paper.baselines import logistic_regression, nearest_neighbor
from semishot.training.evaluation import EPISODES

WAY = 5
CASES = ((1, 14, 64), (1, 14, 784), (1, 5, 1600), (5, 5, 1600))
"""Shot, queries per class and features: Omniglot's encoder and pixels, miniImageNet's encoder."""


def measure(device: torch.device, quick: bool) -> dict[str, Any]:
    count, looped = (6, 2) if quick else (EPISODES, 60)
    rows = []
    for shot, query, size in CASES[:1] if quick else CASES:
        support, labels, queries = random_episodes(count, shot, query, size)
        ours = [part.to(device) for part in (support, labels, queries)]
        loop = [part.numpy() for part in (support[:looped], labels, queries[:looped])]
        for name, batched, one in (
            ("1-NN", nearest_neighbor, lambda: KNeighborsClassifier(1)),
            ("logistic regression", logistic_regression, lambda: LogisticRegression(max_iter=1000)),
        ):
            works: dict[str, Callable[[], object]] = {
                "batched": lambda batched=batched, ours=ours: batched(*ours),
                "loop": lambda one=one, loop=loop: fit_each(one, *loop),
            }
            taken = time_in_turns(works, device, rounds=3, seconds=10.0)
            each, alone = taken["batched"] / count, taken["loop"] / looped
            rows.append(
                {
                    "classifier": name,
                    "shot": shot,
                    "features": size,
                    "seconds_for_600": 600 * each,
                    "loop_seconds_for_600": 600 * alone,
                    "times_faster_than_loop": alone / each,
                }
            )
    return result("logistic", device, quick, {"episodes": count, "looped": looped}, rows)


def random_episodes(count: int, shot: int, query: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Classes that overlap, on the scale of embeddings: (E, S, D), (S,), (E, Q, D) in float64."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(count, WAY, 1, size, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, WAY, shot + query, size, generator=generator, dtype=torch.float64)
    examples = (centers + 2 * noise) / 2
    labels = torch.arange(WAY).repeat_interleave(shot)
    return examples[:, :, :shot].flatten(1, 2), labels, examples[:, :, shot:].flatten(1, 2)


def fit_each(one: Callable[[], Any], support: Any, labels: Any, queries: Any) -> list[Any]:
    return [one().fit(s, labels).predict(q) for s, q in zip(support, queries, strict=True)]


if __name__ == "__main__":
    command("logistic", measure)
