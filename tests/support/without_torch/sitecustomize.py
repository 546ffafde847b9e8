"""On PYTHONPATH, it is as if torch were not installed: `PYTHONPATH=tests/support/without_torch pytest`."""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any


class WithoutTorch(PathFinder):
    """Finds every other module."""

    @classmethod
    def find_spec(cls, fullname: str, *more: Any, **named: Any) -> ModuleSpec | None:
        return None if fullname == "torch" else super().find_spec(fullname, *more, **named)


sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutTorch
