"""The parameters of PrototypeClassifier, checked, and the rule that they choose.

Letters: P examples, N classes, D features.
"""

import copy
from collections.abc import Mapping
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from semishot import refine
from semishot.errors import InputError
from semishot.estimator import by_graph, by_prototypes, graph_rule
from semishot.estimator.blocks import NORMALIZATIONS, Array, Space, mean_direction
from semishot.estimator.evidence import Given
from semishot.estimator.features import check_large, check_small
from semishot.estimator.fitted import Fitted
from semishot.estimator.labels import NAMED_STRANGER, Labels, check_stranger_label, label_weights
from semishot.estimator.lift import lift_of
from semishot.estimator.saved import is_number
from semishot.estimator.scaling import MANY_FEATURES

GRAPH = "graph"
DEFAULTS: Mapping[str, Any] = {
    "normalize": "auto",
    "refiner": GRAPH,
    "reject": None,
    "steps": "auto",
    "stranger_label": "auto",
    "temperature": "auto",
}
"""The parameters of PrototypeClassifier, as its signature has them."""


class Settings(NamedTuple):
    """The parameters, checked."""

    refiner: nn.Module | str | None
    steps: int | None
    normalize: str
    temperature: float | None


def checked(parameters: Mapping[str, Any]) -> Settings:
    """The parameters of a classifier; InputError for the first that is wrong."""
    steps, normalize, reject = (parameters[name] for name in ("steps", "normalize", "reject"))
    counted = type(steps) is not bool and isinstance(steps, Integral) and int(steps) >= 1
    if not counted and not is_word(steps, "auto"):
        raise InputError(
            f"steps must be 'auto' or at least 1, not {steps!r}; refiner=None refines nothing"
        )
    if not is_word(normalize, "auto", *NORMALIZATIONS):
        choices = ", ".join(("auto", *NORMALIZATIONS))
        raise InputError(f"unknown normalize {normalize!r}: choose from {choices}")
    temperature = None if is_word(parameters["temperature"], "auto") else parameters["temperature"]
    if temperature is not None and not (is_number(temperature) and float(temperature) > 0):
        raise InputError(f"temperature must be 'auto' or above 0, not {temperature!r}")
    check_reject(reject)
    check_stranger_label(parameters["stranger_label"])
    return Settings(
        _built(parameters["refiner"]),
        int(steps) if counted else None,
        normalize,
        None if temperature is None else float(temperature),
    )


def check_reject(reject: Any) -> None:
    if reject is not None and not (is_number(reject) and 0 < reject < 1):
        raise InputError(f"reject must be None or between 0 and 1, not {reject!r}")


def _built(refiner: Any) -> nn.Module | str | None:
    if is_word(refiner, "supervised", "basic"):
        return None
    if is_word(refiner, GRAPH):
        return GRAPH
    if isinstance(refiner, str):
        try:
            built = refine.build(refiner).eval()
        except InputError as error:
            raise InputError(
                str(error).replace("choose from ", f"choose from {GRAPH}, ", 1)
            ) from error
        if any(True for _ in built.parameters()):
            raise InputError(
                f"{refiner!r} has learned parameters, which a name does not bring: give the "
                "trained module, or 'graph' or 'fitted_mask', which need no training"
            )
        return built
    if not (refiner is None or isinstance(refiner, nn.Module)):
        raise InputError(f"refiner must be a name, a module or None, not {refiner!r}")
    return copy.deepcopy(refiner)


def fitted_to(
    settings: Settings, features: Array, labels: Labels, sample_weight: Any = None
) -> tuple[Labels, Fitted]:
    """Finite features (P, D) and P labels -> the labels whose weight is not 0, and what is learned."""
    check_small(features, check_large(features))
    if not labels.labeled.any():
        raise InputError("fit needs labeled examples: y holds no class, only -1 or strangers")
    labels, weights = label_weights(labels, sample_weight)  # (P, N)
    return labels, learned(settings, features, weights, labels.codes == NAMED_STRANGER)


def learned(
    settings: Settings,
    features: Array,
    labels: NDArray[np.float64],
    named: NDArray[np.bool_],
) -> Fitted:
    """Features (P, D), weights of labels (P, N), named strangers (P,), by the rule that was chosen."""
    refiner, steps, normalize, temperature = settings
    if not isinstance(refiner, str):
        if refiner is not None:
            refiner = refiner.to(tensor_dtype(features))
        options = by_prototypes.Options(refiner, steps or 1, normalize, temperature)
        return by_prototypes.fit_prototypes(features, labels, named, options)
    if normalize == "auto":
        normalize = "centered" if features.shape[1] >= MANY_FEATURES else "none"
    space = lift_of(features) if normalize == "none" else Space(normalize, mean_direction(features))
    given = Given(features, labels, named, space)
    return by_graph.fit_graph(given, graph_rule.Options(steps or graph_rule.STEPS, temperature))


def tensor_dtype(features: Array) -> torch.dtype:
    return torch.float64 if features.dtype == np.float64 else torch.float32


def is_word(value: Any, *words: str) -> bool:
    """Whether it is one of these strings; an array, which compares by element, is not."""
    return isinstance(value, str) and value in words
