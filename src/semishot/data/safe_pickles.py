"""A safe reader for the pickles of data sets: it reads plain values and arrays and calls nothing.

Opening an ordinary pickle can call any function. Here the few names that plain values and NumPy
arrays need refer to functions of this file, and any other name is refused. NumPy's
own constructors never see the file, so it may come from any version of NumPy, from Python 2 or 3.
"""

import io
import os
import pickle
import pickletools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from semishot.errors import InputError
from semishot.system.files import BUFFER, open_regular, reading

NUMBERS = re.compile(r"[<>=|]?(b1|[iu][1248]|f[248])")
"""The dtypes that are read: booleans, integers and floats of fixed size, no Python objects."""
PLAIN = (type(None), bool, int, float, str, bytes, bytearray, np.generic, np.ndarray)
HASHED = (type(None), bool, int, float, str, bytes, np.generic)
NDARRAY = "numpy.ndarray"
LARGEST = 16 * 2**20  # bytes of one value that `find_bytes` reads
# fmt: off
ENCODINGS = {
    "BINSTRING": "latin1", "SHORT_BINSTRING": "latin1", "BINBYTES": "latin1",
    "SHORT_BINBYTES": "latin1", "BINBYTES8": "latin1", "BYTEARRAY8": "latin1",
    "BINUNICODE": "utf-8", "SHORT_BINUNICODE": "utf-8", "BINUNICODE8": "utf-8",
}
# fmt: on
"""How a pickle holds bytes: as they are, or as UTF-8 of latin1 text (Python 3, protocols 1 and 2)."""


def load(path: Path) -> Any:
    """The value in `path`: dicts, lists, tuples, sets, strings, bytes, numbers and arrays of them."""
    with _reading(path), _Bounded(open_regular(path).detach(), BUFFER) as file:
        file.most = max(LARGEST, os.fstat(file.fileno()).st_size)  # one array may be the whole file
        return _plain(_Reader(file, path).load(), {})


def find_bytes(path: Path, prefix: bytes) -> list[tuple[int, int]]:
    """Where the byte strings that begin with `prefix` are in the file: (start, size), in file order.

    The pickle is scanned, not loaded: this takes little memory for a pickle of any size, and nothing in
    it is called. Protocol 0 is not searched. Pass the bytes found to `unescape`.
    """
    found = []
    with _reading(path), _Bounded(open_regular(path).detach(), BUFFER) as file:
        for code, value, _ in pickletools.genops(file):
            if code.name in ENCODINGS:
                text: Any = (
                    value.decode("latin1") if isinstance(value, bytes | bytearray) else value
                )
                if text.startswith(prefix.decode("latin1")):
                    size = len(text.encode(ENCODINGS[code.name]))
                    found.append((file.tell() - size, size))
    return found


def unescape(data: bytes, prefix: bytes) -> bytes:
    """The byte string that begins with `prefix`, in either way in which a pickle stores it."""
    try:
        return data if data.startswith(prefix) else data.decode().encode("latin1")
    except UnicodeError as error:
        raise InputError(
            "a byte string in a pickle is not in latin1; get the file again"
        ) from error


class _Bounded(io.BufferedReader):
    """A file whose values have a bounded size, whatever its pickle says."""

    most = LARGEST

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > self.most:
            raise ValueError(f"it holds {size:,} bytes in one piece")
        data = super().read(size)
        if size is not None and len(data) < size:
            raise EOFError(f"Ran out of input, {size:,} bytes expected")
        return data


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    with reading(f"{path} as a pickle", "get the file again"):
        try:
            yield
        except KeyError as error:  # raised by pickle for an unknown operation
            raise ValueError(f"invalid load key {error}") from error


OPERATIONS: dict[int, Callable[[Any], None]] = pickle._Unpickler.dispatch


def _hashing(code: bytes) -> Callable[[Any], None]:
    """Wrap an operation that hashes what was read before it: nested tuples could take forever."""

    def checked(reader: Any) -> None:
        pairs = code in (pickle.SETITEMS, pickle.DICT)
        keys = reader.stack[-2:-1] if code == pickle.SETITEM else reader.stack[:: 1 + pairs]
        _check_keys(keys)
        OPERATIONS[code[0]](reader)

    return checked


def _bytearray(reader: Any) -> None:
    """Read before memory is allocated for it, so it is never larger than the file."""
    reader.append(bytearray(reader.read(int.from_bytes(reader.read(8), "little"))))


def _check_keys(keys: Iterable[Any]) -> None:
    for key in keys:
        parts = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(part, HASHED) for part in parts):
            raise ValueError("it holds a key or a member of a set that is not a plain value")


class _Reader(pickle._Unpickler):
    """Based on Python's unpickler in Python: the one in C allocates as many objects as the file claims."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **OPERATIONS,
        **{code[0]: _hashing(code) for code in (pickle.SETITEM, pickle.SETITEMS, pickle.DICT)},
        **{code[0]: _hashing(code) for code in (pickle.ADDITEMS, pickle.FROZENSET)},
        pickle.BYTEARRAY8[0]: _bytearray,
    }

    def __init__(self, file: Any, path: Path) -> None:
        super().__init__(file, encoding="latin1")  # Python 2 strings, which also hold its arrays
        self.path = path

    def find_class(self, module: str, name: str) -> Any:
        called = f"{module}.{name}"
        if called == NDARRAY:
            return NDARRAY
        now = called.replace("numpy._core.", "numpy.core.").replace("__builtin__.", "builtins.")
        known = KNOWN.get(now)
        if known is None:
            shown = " ".join(called.split())[:100]
            raise InputError(f"{self.path} tries to call {shown}: refused; do not trust this file")
        return _Call(known)


class _Call:
    """A function that a pickle may call but not alter."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: object) -> NoReturn:
        raise ValueError("it alters a function")


class _Dtype:
    """Takes the place of a numpy.dtype while the pickle is read."""

    __slots__ = ("order", "size")

    def __init__(self, name: str, *_align_and_copy: object) -> None:
        if not isinstance(name, str) or not NUMBERS.fullmatch(name):
            raise ValueError(f"it holds an array of {str(name)[:20]!r}, not of numbers")
        self.size, self.order = name.lstrip("<>=|"), "="

    def __setstate__(self, state: Sequence[Any]) -> None:
        _version, order, *structure = state
        if order not in tuple("<>=|") or any(part is not None for part in structure[:3]):
            raise ValueError("it holds a structured array, not one of numbers")
        self.order = order

    def array(self, data: str | bytes | bytearray, shape: Sequence[int]) -> NDArray[Any]:
        """The elements in memory order, without a copy if they are bytes."""
        if isinstance(data, str):
            data = data.encode("latin1")
        if not isinstance(data, bytes | bytearray):
            raise ValueError(f"it holds an array of {type(data).__name__}, not of numbers")
        kind = np.dtype(self.order.replace("|", "=") + self.size)
        if (
            len(data) != kind.itemsize * int(np.prod(shape, dtype=object))
            or min(shape, default=0) < 0
        ):
            raise ValueError(f"an array of shape {tuple(shape)} has {len(data):,} bytes")
        return np.frombuffer(data, kind) if data else np.empty(0, kind)


class _Array:
    """Takes the place of a numpy.ndarray, which a pickle creates empty and fills later."""

    __slots__ = ("value",)

    def __setstate__(self, state: Sequence[Any]) -> None:
        _version, shape, kind, fortran, data = state
        self.value = _from_buffer(data, kind, shape, "F" if fortran else "C")


def _empty_array(kind: object, *_shape_and_type: object) -> _Array:
    if kind != NDARRAY:
        raise ValueError("it holds a subclass of numpy.ndarray")
    return _Array()


def _from_buffer(
    data: Any, kind: Any, shape: Any, order: Any, axes: Any = None
) -> NDArray[Any]:  # as numpy.core.numeric._frombuffer
    if not isinstance(kind, _Dtype) or not isinstance(shape, tuple):
        raise ValueError("it holds an array of unknown type or shape")
    flat = kind.array(data, shape)
    if order == "K" and axes is not None:
        return flat.reshape(shape).transpose(axes)
    return flat.reshape(shape, order="F" if order == "F" else "C")


def _scalar(kind: Any, data: Any) -> Any:
    return _from_buffer(data, kind, (), "C")[()]


def _encode(text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise ValueError(f"it holds bytes in {str(encoding)[:20]!r}, not latin1")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""


def _set(members: Iterable[Any] = ()) -> set[Any]:
    held = list(members)
    _check_keys(held)
    return set(held)


def _frozenset(members: Iterable[Any] = ()) -> frozenset[Any]:
    return frozenset(_set(members))


KNOWN: dict[str, Callable[..., Any]] = {
    "numpy.core.multiarray._reconstruct": _empty_array,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy.core.numeric._frombuffer": _from_buffer,
    "numpy.dtype": _Dtype,
    "_codecs.encode": _encode,  # bytes, in protocols 0 to 2
    "builtins.bytes": _no_bytes,  # empty bytes, in protocols 0 to 2
    "builtins.set": _set,
    "builtins.frozenset": _frozenset,
}


def _plain(value: Any, done: dict[int, tuple[Any, Any]]) -> Any:
    """`value` with its placeholders replaced by arrays; `done` handles cycles and repeats."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, _Array):
        return value.value
    if id(value) in done:
        return done[id(value)][1]
    done[id(value)] = value, value  # the first keeps its id from being reused
    if isinstance(value, dict):
        for key, held in value.items():
            _plain(key, done)
            value[key] = _plain(held, done)
    elif isinstance(value, list):
        value[:] = (_plain(held, done) for held in value)
    elif isinstance(value, tuple):
        done[id(value)] = value, tuple(_plain(held, done) for held in value)
    elif isinstance(value, set | frozenset):
        for held in value:
            _plain(held, done)
    else:
        raise ValueError("it holds a function or a type, not a value")
    return done[id(value)][1]
