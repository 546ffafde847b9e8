"""Adam, and SGD with Nesterov's momentum, without PyTorch's compiler.

`torch.optim` imports the compiler, seconds of work, only to exclude its own methods from compiling.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

__all__ = ["Adam", "NesterovSGD"]

MOMENTUM = 0.9


class Adam(torch.optim.Adam):
    """The same steps, the same state."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        inspect.unwrap(torch.optim.Adam.step)(self, closure)


class NesterovSGD(Optimizer):
    """v <- 0.9 v + g, w <- w - rate (g + 0.9 v), for the gradient g with L2 of each group.

    In a CUDA graph or not: the momenta are zero at first, and the learning rate may be a tensor.
    """

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float | Tensor) -> None:
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if not parameters:
                continue
            gradients: list[Tensor] | tuple[Tensor, ...] = [p.grad for p in parameters]
            momenta = [self._momentum_of(p) for p in parameters]
            if group["weight_decay"]:
                gradients = torch._foreach_add(gradients, parameters, alpha=group["weight_decay"])
            torch._foreach_mul_(momenta, MOMENTUM)
            torch._foreach_add_(momenta, gradients)
            changes = torch._foreach_add(gradients, momenta, alpha=MOMENTUM)
            torch._foreach_mul_(changes, group["lr"])
            torch._foreach_sub_(parameters, changes)

    def _momentum_of(self, parameter: Tensor) -> Tensor:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        return state["momentum"]
