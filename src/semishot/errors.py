"""What ends a command early: wrong input, whose message says how to mend it, and a signal."""


class InputError(ValueError):
    """One clear line for the user: what is wrong, where, and what to do. The command exits with 2."""


class Terminated(KeyboardInterrupt):
    """SIGTERM: everything is left as by Ctrl-C."""


def printable(text: str) -> str:
    """What a terminal can show as it is; the rest, escape sequences among it, by its number."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
