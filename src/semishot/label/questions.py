"""Which images the page asks about: a varied few at first, then those most likely sorted wrong.

Letters: P rows of the pile, N classes.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semishot.label.rows import Rows
from semishot.label.snapshot import Snapshot

if TYPE_CHECKING:  # torch is imported when the first page has been shown
    from semishot.label.judge import Judge

Array = NDArray[Any]
ASKED, VARIED = 24, 36
"""How many are asked about, later and at first."""
KEPT = 0.75
"""What was asked before is asked still, if it is more uncertain than this share of the others."""
SMALLEST = 1e-12


class Questions:
    """The images asked about, which change as little as possible from answer to answer."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.images: list[int] = []

    def begin(self, judge: "Judge | None", snapshot: Snapshot, allowed: Array) -> list[int]:
        """Nothing is labeled yet: images that differ. allowed: (P,) rows that may be asked about."""
        row_of = self.rows.row_of
        self.images = [image for image in self.images if allowed[row_of[image]]]
        if len(self.images) < VARIED // 2 and judge is not None:
            more = [int(snapshot.images[row]) for row in judge.varied(VARIED) if allowed[row]]
            self.images = list(dict.fromkeys([*self.images, *more]))[:VARIED]
        return list(self.images)

    def follow(self, judge: "Judge", snapshot: Snapshot, allowed: Array, doubt: Array) -> list[int]:
        """Images to ask about next. doubt: (P,) how likely a row is sorted wrong."""
        row_of = self.rows.row_of
        worth = np.where(allowed, doubt, 0.0)
        usual = float(np.quantile(worth[allowed], KEPT)) if allowed.any() else 0.0
        before = [row_of[image] for image in self.images]
        kept = [row for row in before if worth[row] >= max(usual, SMALLEST)]
        one_class = len(np.unique(snapshot.answers[snapshot.answers >= 0])) == 1
        if one_class and len(self.images) > VARIED // 2:  # still the varied beginning
            kept = [row for row in before if allowed[row]]
        rows = judge.worth_asking(worth, kept, max(ASKED, len(kept)))
        self.images = [int(snapshot.images[row]) for row in rows]
        return list(self.images)
