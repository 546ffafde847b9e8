"""What is said of corrections and answers: how many are used, and which are of files that are not there."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from semishot.errors import counted, printable
from semishot.sorter.answered_files import answered
from semishot.sorter.listing import STRANGER, Item
from semishot.sorter.out_folder import PREDICTIONS


def notes_on(items: Sequence[Item]) -> list[str]:
    """How many corrections are used, and which classes they add."""
    corrected = [item for item in items if item.correct]
    if not corrected:
        return []
    counts = Counter(item.correct for item in corrected)
    named = {item.label for item in items if not item.correct}
    notes = [f"{counted(len(corrected), 'correction is', 'corrections are')} used"]
    if new := sorted(name for name in counts if name not in {*named, STRANGER}):
        shown = ", ".join(printable(name) for name in new[:10])
        notes.append(f"classes that only corrections name: {shown}")
    return notes


def note_on_absent(absent: Sequence[Item]) -> list[str]:
    """Corrections that could not be used."""
    if not absent:
        return []
    first = printable(absent[0].shown)
    if len(absent) == 1:
        what = f"1 correction is of a file that is not there or cannot be read: {first}; it stays"
        return [f"{what} in {PREDICTIONS} and counts when the file is back"]
    what = f"{len(absent):,} corrections are of files that are not there or cannot be read, such as {first}"
    return [f"{what}: they stay in {PREDICTIONS} and count when the files are back"]


def note_on_answers(items: Sequence[Item], out: Path) -> list[str]:
    """Answers of `label` that could not be used: they are kept where they are."""
    said = answered(out)
    listed = {item.source for item in items}
    found = {said.images[p] for p in said.labels if p in listed or p.exists()}
    if not (lost := len({said.images[p] for p in said.labels} - found)):
        return []
    answers = counted(
        lost,
        "answer of `semishot label` is of a file that is not there",
        "answers of `semishot label` are of files that are not there",
    )
    return [f"{answers}; started on the pile where it is now, it finds them by their content"]
