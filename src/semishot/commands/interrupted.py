"""What is kept of a command that is interrupted, and how to go on, by the name of the command."""

from collections.abc import Sequence

from semishot.system.interruptions import note_left

CHECKPOINT = "the same command continues from the last checkpoint"
LEFT = {
    **dict.fromkeys(("demo", "train", "reproduce"), CHECKPOINT),
    "classify": "the features of images read so far are kept, and the same command continues",
    "predict": "run it again; with --cache, the features of images read so far are kept",
    "label": "answers are kept, and the same command continues",
    "undo": "the same command undoes the rest",
    "data prepare": "run it again; a large data set continues where it stopped",
}
"""The others write one thing at the end, or nothing."""


def note_what_stays(arguments: Sequence[str]) -> None:
    """Note what an interruption of this command leaves. `classify` knows more when it sorts files."""
    names = " ".join(arguments[:2]), " ".join(arguments[:1])
    note_left(next((LEFT[name] for name in names if name in LEFT), ""))
