"""Labels that come from outside of the page: each becomes an answer once."""

from collections.abc import Iterable, Sequence

from semishot.errors import InputError
from semishot.label.pile_reader import PileReader
from semishot.sorter.answer_events import NONE
from semishot.sorter.answers import Answers
from semishot.sorter.labels_database import LostDatabaseError
from semishot.sorter.listing import STRANGER

MOST_SHOWN = 3


class OutsideLabels:
    """Labels of --labeled, and corrections made in OUT since the last time."""

    def __init__(self, answers: Answers, reader: PileReader) -> None:
        self.answers, self.reader, self.rows = answers, reader, reader.rows
        self.corrections_seen = False
        self.answered_since: set[int] = set()
        """Images of which something was said on the page since the start."""
        self.refused: dict[str, str] = {}
        """Labels that cannot be taken over, and why."""

    @property
    def problem(self) -> str:
        """One line on the labels that cannot be taken over."""
        shown = [
            f"{label[:40]!r} ({why})" for label, why in list(self.refused.items())[:MOST_SHOWN]
        ]
        more = len(self.refused) - len(shown)
        rest = f" and {more:,} more" if more else ""
        return f"Labels that are not taken over: {', '.join(shown)}{rest}" if shown else ""

    def take(self) -> None:
        """Answer by what is new."""
        with self.rows.lock:
            given = set(self.rows.given.items())
        new = given - self.reader.catalog.imported()
        for label, images in _by_label(new).items():
            self._answer_by(label, images)
        new = {one for one in new if one[1] not in self.refused}
        if new:
            self.reader.catalog.add_imported(new)
        if self.reader.progress.phase == "ready" and not self.corrections_seen:
            self.corrections_seen = True
            self._take_corrections()

    def _take_corrections(self) -> None:
        """They are later than the answers, but for those of this run."""
        with self.rows.lock:
            current = set(self.rows.corrected.items())
        new = self.reader.catalog.replace_imported("corrected", current)
        open_ones = ((image, label) for image, label in new if image not in self.answered_since)
        for label, images in _by_label(open_ones).items():
            self._answer_by(label, images, over=True)

    def _answer_by(self, label: str, images: Sequence[int], over: bool = False) -> None:
        """A label that cannot be the name of a class is no reason to show nothing at all."""
        self.refused.pop(label, None)
        try:
            answer_by(self.answers, label, images, over)
        except LostDatabaseError:
            raise
        except InputError as error:
            self.refused[label] = str(error)


def _by_label(given: Iterable[tuple[int, str]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for image, label in sorted(given):
        found.setdefault(label, []).append(image)
    return found


def answer_by(answers: Answers, label: str, images: Sequence[int], over: bool) -> None:
    """Label images in a class of this name, made if needed; those that have an answer only if `over`."""
    name = " ".join("".join(c if c.isprintable() else "?" for c in label).split())[:100] or "?"
    held = {known.casefold(): number for number, known in answers.state.classes.items()}
    number = NONE if label == STRANGER else held.get(name.casefold())
    said = answers.state.answers
    open_images = [
        image for image in images if image not in said or (over and said[image] != number)
    ]
    if number is None:
        answers.add({"kind": "new", "name": name, "images": open_images})
    elif open_images:
        answers.add({"kind": "answer", "set": [[number, open_images]]})
