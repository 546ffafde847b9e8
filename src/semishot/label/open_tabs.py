"""The open tabs of the page: each is told when there is something new."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from semishot.label.session import Session

BEAT, PAUSE = 15.0, 0.25
"""Seconds between two signs of life to an open tab, and between two looks at whether the server ends."""


class OpenTabs:
    """A stream of events for each tab."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.waiting: set[asyncio.Event] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.ending: Callable[[], bool] = lambda: False
        """Whether the server is about to end: streams end then, too."""

    async def events(self) -> AsyncIterator[str]:
        """What a tab must know to stay up to date: the version, and how far reading is."""
        changed = asyncio.Event()
        self.waiting.add(changed)
        silent = BEAT
        try:
            while not self.ending():
                if changed.is_set() or silent >= BEAT:
                    changed.clear()
                    silent = 0.0
                    yield f"data: {json.dumps(self._about())}\n\n"
                    await asyncio.sleep(0.02)  # several changes at once are one
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), PAUSE)
                silent += PAUSE
        finally:
            self.waiting.discard(changed)

    def _about(self) -> dict[str, Any]:
        session = self.session
        return {
            "epoch": session.epoch,
            "version": session.snapshot.version,
            "progress": session.reader.progress._asdict(),
            "problem": session.problem or session.outside_labels.problem,
        }

    def tell(self) -> None:
        """Wake the open tabs; called from any thread."""
        if self.loop is not None and not self.loop.is_closed():
            with contextlib.suppress(RuntimeError):  # it is just closing
                self.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for event in self.waiting:
            event.set()
