"""From answers to figures. Letters: P rows of the pile, N classes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture

from pile_tasks.methods import REJECT, Answer

Array = NDArray[Any]
Found = dict[str, Any]
BINS, LEAST = 15, 1e-6
PAIRED = ("accuracy", "auroc", "sorted")
"""Kept task by task, so that methods can be compared pairwise; of the others the mean."""
WITH_ERROR = ("lost", "log_loss")
"""The mean and its standard error."""


def figures(answer: Answer, truth: Array) -> Found:
    """Of one task. `truth` (P,) is -1 for strangers."""
    member = truth >= 0
    classes = answer.classes.argmax(1)
    stranger = answer.stranger if answer.stranger is not None else as_probability(answer.score)
    out = (
        answer.out if answer.out is not None else stranger > (1 - stranger) * answer.classes.max(1)
    )
    lost = answer.lost if answer.lost is not None else cut(stranger)
    expected, low, high = answer.count if answer.count is not None else counted(stranger)
    found: Found = {
        "sorted": (np.where(out, -1, classes) == truth).mean(),
        "log_loss": -np.log(np.where(member, 1 - stranger, stranger).clip(LEAST)).mean(),
        "count": abs(expected - (~member).sum()) / len(truth),
        "covered": float(np.floor(low) <= (~member).sum() <= np.ceil(high)),
        "rows": (stranger, ~member, answer.classes.max(1)[member], (classes == truth)[member]),
    }
    if member.any():
        own = answer.classes[member, truth[member]]
        found["accuracy"] = (classes == truth)[member].mean()
        found["class_log_loss"] = -np.log(own.clip(LEAST)).mean()
        found["lost"] = lost[member].mean()
    if not member.all():
        found["found"] = lost[~member].mean()
        if member.any():
            ranked = answer.score if answer.score is not None else stranger
            found["auroc"] = roc_auc_score(~member, ranked)
    return found


def as_probability(score: Array) -> Array:
    """Of a score that is none: the posterior of a mixture of two normals, 0 if one normal fits as well."""
    values = score[:, None]
    if len(values) < 4 or np.ptp(values) < 1e-9:
        return np.zeros(len(values))
    values = (values - values.mean()) / values.std()
    two, one = (GaussianMixture(n, random_state=0, reg_covar=1e-3).fit(values) for n in (2, 1))
    if one.bic(values) <= two.bic(values):
        return np.zeros(len(values))
    high = int(two.means_.argmax())
    posterior = two.predict_proba(values)[:, high]
    order = np.argsort(score)
    posterior[order] = np.maximum.accumulate(posterior[order])  # a wider normal must not win below
    return posterior


def cut(stranger: Array) -> Array:
    """The least probable members, as many as make up 5 % of the members expected."""
    order = np.argsort(-stranger, kind="stable")
    gone = np.cumsum(1 - stranger[order])
    out = np.zeros(len(order), bool)
    out[order[gone <= REJECT * (1 - stranger).sum()]] = True
    return out


def counted(stranger: Array) -> tuple[float, float, float]:
    """Sum of the probabilities, and 90 % if rows are independent."""
    wide = norm.ppf(0.95) * np.sqrt((stranger * (1 - stranger)).sum())
    expected = stranger.sum()
    return expected, expected - wide, expected + wide


def summary(tasks: list[Found]) -> Found:
    """Of one method in one cell. Calibration is over the rows of all tasks."""
    found: Found = {}
    for key in sorted({key for task in tasks for key in task} - {"rows"}):
        values = np.array([task[key] for task in tasks if key in task])
        error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
        if key in PAIRED:
            found[key] = [round(float(v), 3) for v in values]
        else:
            found[key] = [round(float(v), 4) for v in (values.mean(), error)][
                : 1 + (key in WITH_ERROR)
            ]
    rows = zip(*(task["rows"] for task in tasks), strict=True)
    stranger, wanted, sure, right = map(np.concatenate, rows)
    found["ece"] = [round(calibration_error(stranger, wanted), 4)]
    if len(sure):
        found["class_ece"] = [round(calibration_error(sure, right), 4)]
    return found


def calibration_error(probability: Array, right: Array) -> float:
    """ECE: |probability - share that is right| in 15 bins of probability, weighted by their size."""
    bins = np.minimum((probability * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, probability - right, BINS)
    return float(np.abs(gaps).sum() / len(right))
