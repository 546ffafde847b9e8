"""Features as they are given: tensors become arrays; numbers whose squares overflow or vanish are refused."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from semishot.errors import InputError
from semishot.estimator.blocks import Array


def check_small(features: Array, largest: float) -> None:
    smallest = np.finfo(features.dtype).tiny ** 0.25
    if 0 < largest < smallest:
        raise InputError(
            f"no feature is larger than {largest:.3g}, and squares of numbers below {smallest:.3g} "
            f"vanish in {features.dtype}: rescale X"
        )


def as_array(values: Any) -> Any:
    """A tensor as an array; anything else unchanged."""
    if not isinstance(values, Tensor):
        return values
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()


def check_large(features: Array) -> float:
    """The largest magnitude; an error if the squares of such numbers may overflow."""
    largest, limit = max(features.max(), -features.min()), np.finfo(features.dtype).max ** 0.4
    if largest > limit:
        raise InputError(
            f"features reach {largest:.3g}, and squares of numbers above {limit:.3g} may overflow in "
            f"{features.dtype}: rescale X, or give float64"
        )
    return float(largest)
