"""What ends a command early: wrong input, whose message says how to mend it, and a signal."""


class InputError(ValueError):
    """One clear line for the user: what is wrong, where, and what to do. The command exits with 2."""


class Terminated(KeyboardInterrupt):
    """SIGTERM; handled like Ctrl-C."""


def printable(text: str) -> str:
    """Text that is safe to print: other characters, such as escape sequences, by their number."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
