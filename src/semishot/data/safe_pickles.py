"""A safe reader for the pickles of data sets: plain values and arrays of numbers.

Opening an ordinary pickle can call any function. Here only the few names that plain values and NumPy arrays
need are allowed, whatever version of NumPy and Python wrote them.
"""

import pickle
import pickletools
import re
from pathlib import Path
from typing import IO, Any

import numpy as np

from semishot.errors import InputError
from semishot.system.files import open_regular, reading

REMEDY = "get the file again"
NUMBERS = re.compile(r"[<>=|]?(b1|[iu][1248]|f[248])")
"""The dtypes that are read: booleans, integers and floats of fixed size, no Python objects."""
# fmt: off
ENCODINGS = {
    "BINSTRING": "latin1", "SHORT_BINSTRING": "latin1", "BINBYTES": "latin1",
    "SHORT_BINBYTES": "latin1", "BINBYTES8": "latin1", "BYTEARRAY8": "latin1",
    "BINUNICODE": "utf-8", "SHORT_BINUNICODE": "utf-8", "BINUNICODE8": "utf-8",
}
# fmt: on
"""How a pickle stores bytes: as they are, or as UTF-8 of latin1 text (Python 3, protocols 1 and 2)."""


def load(path: Path, member: IO[bytes] | None = None) -> Any:
    """The value in `path`: dicts, lists, tuples, sets, strings, bytes, numbers and arrays of them.

    `member`: a file in `path`, an archive, to read instead.
    """
    with reading(f"{path} as a pickle", REMEDY), member or open_regular(path) as file:
        return _Reader(file, path).load()


def find_bytes(path: Path, prefix: bytes) -> list[tuple[int, int]]:
    """Where the byte strings that begin with `prefix` are in the file: (start, size), in file order.

    The pickle is scanned, not loaded: this takes little memory for a pickle of any size. Protocol 0 is not
    searched. Pass the bytes found to `unescape`.
    """
    ranges = []
    with reading(f"{path} as a pickle", REMEDY), open_regular(path) as file:
        for code, value, _ in pickletools.genops(file):
            if code.name in ENCODINGS:
                is_text = isinstance(value, str)
                text: Any = value if is_text else bytes(value or b"").decode("latin1")
                if text.startswith(prefix.decode("latin1")):
                    size = len(text.encode(ENCODINGS[code.name]))
                    ranges.append((file.tell() - size, size))
    return ranges


def unescape(data: bytes, prefix: bytes) -> bytes:
    """The byte string that begins with `prefix`, in either way in which a pickle stores it."""
    try:
        return data if data.startswith(prefix) else data.decode().encode("latin1")
    except UnicodeError as error:
        raise InputError(
            "a byte string in a pickle is not in latin1; get the file again"
        ) from error


class _Reader(pickle.Unpickler):
    def __init__(self, file: Any, path: Path) -> None:
        super().__init__(file, encoding="latin1")  # Python 2 strings, which also hold its arrays
        self.path = path

    def find_class(self, module: str, name: str) -> Any:
        called = f"{module}.{name}"
        now = called.replace("numpy._core.", "numpy.core.").replace("__builtin__.", "builtins.")
        if now not in KNOWN:
            shown = " ".join(called.split())[:100]
            raise InputError(f"{self.path} tries to call {shown}: refused; do not trust this file")
        return KNOWN[now]


def _dtype(name: str, *_align_and_copy: object) -> np.dtype[Any]:
    if not isinstance(name, str) or not NUMBERS.fullmatch(name):
        raise ValueError(f"it holds an array of {str(name)[:20]!r}, not of numbers")
    return np.dtype(name, copy=True)  # its byte order may be set


def _encode(text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise ValueError(f"it holds bytes in {str(encoding)[:20]!r}, not latin1")
    return text.encode("latin1")


KNOWN: dict[str, Any] = {
    "numpy.core.multiarray._reconstruct": np.empty(0).__reduce__()[0],
    "numpy.core.multiarray.scalar": np.uint8().__reduce__()[0],
    "numpy.core.numeric._frombuffer": np.empty(1).__reduce_ex__(5)[0],
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": _dtype,
    "_codecs.encode": _encode,  # bytes, in protocols 0 to 2
    "builtins.bytes": bytes,  # empty bytes, in protocols 0 to 2
    "builtins.set": set,
    "builtins.frozenset": frozenset,
}
