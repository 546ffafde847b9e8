"""Exceptions that end a command early, and the words of messages: counts, reasons, printable names."""

LONGEST_REASON = 500
"""Characters of another library's message that are shown."""


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


def reason_of(error: BaseException) -> str:
    """What an error says, or its type, in one line of bounded length."""
    return " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__


def printable(text: str) -> str:
    """The text with unprintable characters, such as escape sequences, written as `\\x1b`."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
