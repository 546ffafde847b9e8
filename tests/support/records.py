"""A record with every field, to be changed where a test looks."""

from typing import Any


def record(**changes: Any) -> dict[str, Any]:
    """A run of Table 1 as it is published."""
    return {
        "kind": "accuracy",
        "dataset": "omniglot",
        "preset": "ren2018",
        "model": "masked_soft_kmeans",
        "options": {},
        "way": 5,
        "shot": 1,
        "query": 14,
        "unlabeled": 5,
        "distractors": 5,
        "split": "test",
        "split_seed": 0,
        "episodes": 600,
        "accuracy": 0.9,
        "accuracy_ci95": 0.01,
        "recipe": {"halvings": [6000, 8000, 12000, 14000, 16000, 18000]},
        "train": {"way": 5, "shot": 1, "query": 1, "unlabeled": 5, "distractors": 5},
        "updates": 20_000,
        "seconds": 1.5,
        "device": "some device",
        "versions": {"semishot": "0.2.0"},
        "date": "2026-11-15T10:00:00Z",
        "code": "0123456789ab",
        **changes,
    }


def baseline(**changes: Any) -> dict[str, Any]:
    """1-NN on pixels, of Table 5."""
    own = {"kind": "baseline", "model": "nearest_neighbor", "features": "pixels", "distractors": 0}
    return record(**own, recipe={}, train={}, updates=0) | changes


def masks(**changes: Any) -> dict[str, Any]:
    """A run behind Figure 7, with four bins."""
    telling = {"auroc": 0.75, "average_precision": 0.5, "auroc_within_episode": 0.25}
    histogram = {"distractors": [6, 0, 0, 2], "others": [1, 0, 0, 3]}
    own = {"tells_distractors": {"mask": telling}, "mask_histogram": histogram, "bimodality": 0.8}
    return record(kind="masks", **own) | changes


def ablation(**changes: Any) -> dict[str, Any]:
    """The cell that variants depart from."""
    return record(kind="ablation", variant="", only="") | changes
