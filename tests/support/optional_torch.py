"""Tests of the user's half run without torch, too; those that use it themselves are skipped there."""

import importlib
from importlib.util import find_spec
from typing import Any

import pytest

HAS_TORCH = find_spec("torch") is not None
REASON = "needs torch"
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason=REASON)


class Missing:
    """Skips the test that uses it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        pytest.skip(REASON)


def module_or_skip(name: str) -> Any:
    """torch, or a module that imports it. Code under test does not get it: if it needs torch, it fails."""
    return importlib.import_module(name) if HAS_TORCH else Missing()
