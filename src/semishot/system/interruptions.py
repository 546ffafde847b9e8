"""What an interruption leaves, for the last line of a command: it differs by command, and by phase."""

_left: list[str] = []


def note_left(what: str) -> None:
    """From now on this is what an interruption leaves, and how to go on."""
    _left[:] = [what]


def interrupted_line() -> str:
    """`interrupted`, and what was noted last."""
    return "; ".join(["interrupted", *filter(None, _left)])
