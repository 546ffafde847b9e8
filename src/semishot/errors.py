"""Exceptions that end a command early, and the words of messages: counts, reasons, printable names."""

from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_REASON = 500
"""Characters of another library's message that are shown."""
EXTRAS = {
    "torch": ("PyTorch", "train"),
    "starlette": ("Starlette", "label"),
    "uvicorn": ("uvicorn", "label"),
    "onnx": ("onnx", "onnx"),
    "huggingface_hub": ("huggingface_hub", "hub"),
    "tokenizers": ("tokenizers", "hub"),
    "ray": ("Ray", "ray"),
    "tensorboard": ("TensorBoard", "tensorboard"),
}
"""Modules that are not always installed: what they are called, and the extra that brings them."""


class InputError(ValueError):
    """Wrong input. The message is one line: what is wrong, where, and what to do. Commands exit with 2."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C."""


@contextmanager
def needing_extra(what: str) -> Iterator[None]:
    """Turn a failed import of an extra's package into one line: what needs it, and how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        name, extra = EXTRAS[package]
        raise InputError(f"{what} needs {name}: pip install 'semishot[{extra}]'") from error


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
