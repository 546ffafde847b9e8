"""Data sets that cannot be prepared."""

from collections.abc import Callable
from pathlib import Path

import pytest

from semishot.errors import InputError


def prepare_refusal(prepare: Callable[..., object], source: Path | None, work: Path) -> str:
    """The one line with which `prepare` refuses this source, after which `work` is as before."""
    before = sorted(work.iterdir())
    with pytest.raises(InputError) as caught:
        prepare(work / "pool", source)
    assert sorted(work.iterdir()) == before, "nothing is left behind"
    assert "\n" not in str(caught.value)
    return str(caught.value)
