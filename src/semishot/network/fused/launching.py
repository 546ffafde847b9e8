"""Launching kernels; and compiling those of a whole update first, several at a time."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import triton
from torch import Tensor

MOST_THREADS = 16
_noted: dict[tuple[Any, ...], Callable[[], object]] | None = None
"""While kernels are only noted: how to compile each. Global, since gradients have a thread of their own."""


def launch(kernel: Any, grid: tuple[int, ...]) -> Callable[..., None]:
    """`launch(kernel, grid)(...)` is `kernel[grid](...)`, unless kernels are only noted."""

    def run(*arguments: Any, **options: Any) -> None:
        if _noted is None:
            kernel[grid](*arguments, **options)
        else:
            parts = zip(kernel.params, arguments, strict=False)
            key = (kernel, *(value if p.is_constexpr else _type(value) for p, value in parts))
            _noted[(*key, *options.items())] = lambda: kernel.warmup(
                *arguments, grid=grid, **options
            )

    return run


def _type(value: Any) -> Any:
    """All that a compiled kernel depends on."""
    if isinstance(value, tuple):
        return tuple(_type(each) for each in value)
    return value.dtype if isinstance(value, Tensor) else type(value)


@contextmanager
def compiled_ahead() -> Iterator[None]:
    """Inside, kernels are not launched, so all results are arbitrary; in the end all are compiled.

    Versions of Triton that do not compile in threads compile each kernel when it is first launched.
    """
    global _noted
    _noted = {}
    try:
        yield
    finally:
        works, _noted = list(_noted.values()), None
    if hasattr(triton, "AsyncCompileMode"):
        with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
            for done in [pool.submit(work) for work in works]:
                done.result()
