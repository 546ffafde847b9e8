"""A step of Adam for all parameters in one kernel.

PyTorch's fused step gives a block 65,536 numbers: too few blocks for a small fleet. The state is that of
`torch.optim.Adam`, and so are the checkpoints.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from semishot.network.adam import Adam
from semishot.network.fused.launching import launch

BLOCK = 1024


@triton.jit
def _one_minus_power(log_base: tl.constexpr, step):
    """1 - base ** step, without losing the digits of a small difference."""
    x = step * log_base
    small = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6)))))
    return tl.where(x > -0.5, -small, 1 - tl.exp(x))


@triton.jit
def _chosen(pointers, starts, block, COUNT: tl.constexpr):
    """Of these tensors, the one that this block is of."""
    out = pointers[0].to(tl.int64)
    for i in tl.static_range(1, COUNT):
        out = tl.where(block >= tl.load(starts + i), pointers[i].to(tl.int64), out)
    return tl.multiple_of(out, 16).to(tl.pointer_type(tl.float32))


@triton.jit
def _adam_kernel(
    parameters, grads, firsts, seconds, table, rate, step,
    COUNT: tl.constexpr, LOG1: tl.constexpr, LOG2: tl.constexpr, BETA1: tl.constexpr,
    BETA2: tl.constexpr, EPS: tl.constexpr, DECAY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`table` (3, COUNT): each tensor's first block, its size, and whether its weights decay."""
    block = tl.program_id(0)
    start, size, decays = block * 0, tl.load(table + COUNT), tl.load(table + 2 * COUNT)
    for i in tl.static_range(1, COUNT):
        later = block >= tl.load(table + i)
        start = tl.where(later, tl.load(table + i), start)
        size = tl.where(later, tl.load(table + COUNT + i), size)
        decays = tl.where(later, tl.load(table + 2 * COUNT + i), decays)
    at = (block - start) * BLOCK + tl.arange(0, BLOCK)
    real = at < size
    parameters = _chosen(parameters, table, block, COUNT) + at
    firsts = _chosen(firsts, table, block, COUNT) + at
    seconds = _chosen(seconds, table, block, COUNT) + at
    p = tl.load(parameters, mask=real)
    g = tl.load(_chosen(grads, table, block, COUNT) + at, mask=real)
    g += tl.where(decays > 0, DECAY, 0.0) * p
    t = tl.load(step) + 1
    first = tl.load(firsts, mask=real)
    first += (1 - BETA1) * (g - first)
    second = tl.load(seconds, mask=real)
    second = BETA2 * second + (1 - BETA2) * g * g
    tl.store(firsts, first, mask=real)
    tl.store(seconds, second, mask=real)
    size_of_step = tl.load(rate) / _one_minus_power(LOG1, t)
    root = tl.sqrt(second) / tl.sqrt(_one_minus_power(LOG2, t)) + EPS
    tl.store(parameters, p - size_of_step * first / root, mask=real)


class OneKernelAdam(Adam):
    """Adam on one CUDA device, in graphs or not: float32, and the first of two groups decays."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Parameters without a gradient are left as they are."""
        decayed, others = (
            [p for p in g["params"] if p.grad is not None] for g in self.param_groups
        )
        parameters = [*decayed, *others]
        states = [self._state_of(parameter) for parameter in parameters]
        group = self.param_groups[0]
        beta1, beta2 = group["betas"]
        blocks, table = self._table(len(decayed), tuple(p.numel() for p in parameters))
        launch(_adam_kernel, (blocks,))(
            tuple(parameters),
            tuple(_aligned(p.grad) for p in parameters if p.grad is not None),
            tuple(state["exp_avg"] for state in states),
            tuple(state["exp_avg_sq"] for state in states),
            table, group["lr"], states[0]["step"],
            len(parameters), math.log(beta1), math.log(beta2), beta1, beta2,
            group["eps"], group["weight_decay"], BLOCK,
        )  # fmt: skip
        torch._foreach_add_([state["step"] for state in states], 1)

    def _state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state

    def _table(self, decayed: int, sizes: tuple[int, ...]) -> tuple[int, Tensor]:
        """How many blocks there are, and the kernel's table; made once, before a graph is captured."""
        tables: dict[tuple[int, ...], tuple[int, Tensor]] = self.__dict__.setdefault("tables", {})
        key = (decayed, *sizes)
        if key not in tables:
            starts, blocks = [], 0
            for size in sizes:
                starts.append(blocks)
                blocks += triton.cdiv(size, BLOCK)
            decays = [int(i < decayed) for i in range(len(sizes))]
            device = self.param_groups[0]["params"][0].device
            rows = torch.tensor([starts, sizes, decays], dtype=torch.int32, device=device)
            tables[key] = blocks, rows
        return tables[key]


def _aligned(grad: Tensor) -> Tensor:
    """The kernel reads 16 bytes at a time."""
    grad = grad.contiguous()
    return grad if grad.data_ptr() % 16 == 0 else grad.clone()
