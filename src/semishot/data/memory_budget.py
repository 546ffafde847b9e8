"""Memory for decoding pictures, which the threads of a process share."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from semishot.data.picture_limits import MOST_MEMORY

LARGE_MEMORY = MOST_MEMORY // 8
"""Of processes that work on one pool, one at a time decodes a picture that takes more."""


class Budget:
    """Memory that threads share: each waits until there is room for what it takes."""

    def __init__(self, most: int) -> None:
        self.most, self.used, self.changed = most, 0, threading.Condition()
        self.one_large: AbstractContextManager[Any] = nullcontext()
        """Held for a large picture: a lock of several processes, in processes that share a work."""

    @contextmanager
    def take(self, amount: int) -> Iterator[None]:
        amount = min(amount, self.most)
        with self.one_large if amount > LARGE_MEMORY else nullcontext():
            with self.changed:
                self.changed.wait_for(lambda: self.used + amount <= self.most)
                self.used += amount
            try:
                yield
            finally:
                with self.changed:
                    self.used -= amount
                    self.changed.notify_all()


budget = Budget(MOST_MEMORY)
