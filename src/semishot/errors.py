"""Exceptions that end a command early: wrong input, with a message that says what to do, and signals."""


class InputError(ValueError):
    """Wrong input. The message is one line: what is wrong, where, and what to do. Commands exit with 2."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C."""


def check_number(name: str, value: int, least: int, most: int) -> None:
    """`name` is the flag, or what else the user calls it."""
    if value < least:
        raise InputError(f"{name} must be at least {least:,}, not {value}")
    if value > most:
        raise InputError(f"{name} must be at most {most:,}, not {value}")


def counted(count: int, one: str, several: str = "") -> str:
    """`1 file`, `2 files`; `several` if that is not `one` with an s."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def printable(text: str) -> str:
    """The text with unprintable characters, such as escape sequences, written as `\\x1b`."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
