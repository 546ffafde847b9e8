"""The answers of `label` by file, for `classify` in the same OUT."""

import os
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from semishot.sorter.answer_events import NONE
from semishot.sorter.answers import Answers
from semishot.sorter.labels_database import DATABASE, open_database
from semishot.sorter.listing import STRANGER
from semishot.system.files import real_place


@dataclass(frozen=True)
class Answered:
    """Files by what was answered about them in `label`."""

    labels: dict[Path, str] = field(default_factory=dict)
    """A class, or `stranger`."""
    taken_back: set[Path] = field(default_factory=set)
    """Files whose label or correction was taken over, and taken back in the page."""
    at: float = 0.0
    """When the last answer was given, in seconds since 1970."""
    images: dict[Path, int] = field(default_factory=dict)
    """The number of the image that a file of `labels` holds: copies have the same."""


def answered(out: Path) -> Answered:
    """The answers of `semishot label --out OUT`; nothing, if it was never used."""
    if not (out / DATABASE).exists():
        return Answered()
    with closing(open_database(out)) as database:
        state = Answers(database).state
        ((at,),) = database.rows("SELECT coalesce(max(at), 0) FROM events")
        imported = {image for (image,) in database.rows("SELECT image FROM imported")}
        begun_in = Path(database.about("folder") or ".")
        files = database.rows("SELECT path, image FROM files")
    names = {NONE: STRANGER, **state.classes}
    labels, taken_back, images = {}, set(), {}
    for path, image in files:
        place = real_place(begun_in / os.fsdecode(path))
        if image in state.answers:
            labels[place] = names[state.answers[image]]
            images[place] = image
        elif image in imported:
            taken_back.add(place)
    return Answered(labels, taken_back, float(at), images)
