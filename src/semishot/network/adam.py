"""Adam without PyTorch's compiler.

`torch.optim` imports the compiler, seconds of work, only to exclude its own methods from compiling.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

__all__ = ["Adam"]


class Adam(torch.optim.Adam):
    """The same steps, the same state."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        inspect.unwrap(torch.optim.Adam.step)(self, closure)
