"""A method outside the package, in a module that lies in the working folder."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from semishot import refine

MODULE = '''"""Half of what soft k-means gives; importing it leaves a trace."""

from pathlib import Path

import torch
from torch import nn

from semishot.prototypes import class_log_probs

Path("imported").touch()


class Halved(nn.Module):
    def __init__(self, runs=None, start=0.0):
        super().__init__()
        self.logit = nn.Parameter(torch.full(() if runs is None else (runs,), start))

    def forward(self, unlabeled, prototypes):
        shape = (-1, *(1,) * (unlabeled.ndim - 1))
        share = self.logit.sigmoid().reshape(shape)
        return share * class_log_probs(unlabeled, prototypes).exp()


class Refiner(nn.Module):
    needs_support = True

    def __init__(self, runs=None):
        super().__init__()

    def forward(self, unlabeled, prototypes, support, labels):
        return class_log_probs(unlabeled, prototypes).exp() / (1 + support.shape[-2])


def function(runs=None):
    return Halved(runs)
'''


@contextmanager
def own_module(
    folder: Path, name: str = "own_methods_of_a_test", text: str = MODULE
) -> Iterator[str]:
    """The module's name; the working folder holds it. Forgotten in the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refine, "_ADDED", {})
        patch.chdir(folder)
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        try:
            yield name
        finally:
            sys.modules.pop(name, None)


def forget(module: str) -> None:
    """As in another process: nothing is imported, nothing is allowed."""
    sys.modules.pop(module, None)
    for name in refine.added():
        refine._ADDED.pop(name)
    Path("imported").unlink(missing_ok=True)
