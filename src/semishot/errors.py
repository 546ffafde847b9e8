"""Exceptions that end a command early: wrong input, with a message that says what to do, and signals."""


class InputError(ValueError):
    """Wrong input. The message is one line: what is wrong, where, and what to do. Commands exit with 2."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C."""


def printable(text: str) -> str:
    """The text with unprintable characters, such as escape sequences, written as `\\x1b`."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
