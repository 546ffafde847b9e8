"""The judged state as bytes: what the page is sent, and what the next start shows until it has judged anew.

Little-endian: the length of a JSON header, the header, then a column for each field of a row, each padded to
8 bytes. The copy in OUT is a cache: it is used only if it is about the same folders and the same answers.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.errors import InputError
from semishot.label.requests import LabelRequest
from semishot.system.files import read_regular, write_whole

FILE = ".label-view"
MOST_BYTES = 2**28
COLUMNS = {
    "images": "<u4",
    "groups": "<u4",
    "scores": "<f4",
    "answers": "<i2",
    "guesses": "<i2",
    "sure": "u1",
    "stranger": "u1",
    "flags": "u1",
    "copies": "u1",
}
"""sure and stranger are of 255."""

Array = NDArray[Any]


def pack(about: Mapping[str, Any], columns: Mapping[str, Array]) -> bytes:
    header = json.dumps(about).encode()
    header += b" " * (-(len(header) + 4) % 8)
    parts = [struct.pack("<I", len(header)), header]
    for name, kind in COLUMNS.items():
        data = columns[name].astype(kind).tobytes()
        parts += [data, b"\0" * (-len(data) % 8)]
    return b"".join(parts)


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and columns; ValueError, KeyError or struct.error if they are not all there."""
    (length,) = struct.unpack_from("<I", data)
    about = json.loads(data[4 : 4 + length])
    rows, at = int(about["rows"]), 4 + length
    columns = {}
    for name, kind in COLUMNS.items():
        columns[name] = np.frombuffer(data, kind, rows, at)
        at += -(-columns[name].nbytes // 8) * 8
    return about, columns


def _asked(request: LabelRequest) -> list[str | None]:
    """What the view is about, whichever folder the command is run in."""
    places = (request.pile, request.labeled)
    return [None if place is None else str(place.absolute()) for place in places]


def keep_view(request: LabelRequest, event: int, data: bytes) -> None:
    head = json.dumps({"asked": _asked(request), "event": event}).encode()
    whole = struct.pack("<I", len(head)) + head + data
    write_whole(request.folder / FILE, whole)


def kept_view(
    request: LabelRequest, name: str, event: int
) -> tuple[dict[str, Any], dict[str, Array]] | None:
    """The view of these folders, of the database of this name, after this event; None: there is none."""
    try:
        data = read_regular(request.folder / FILE, MOST_BYTES)
        (length,) = struct.unpack_from("<I", data)
        head = json.loads(data[4 : 4 + length])
        about, columns = unpack(data[4 + length :])
        same = head == {"asked": _asked(request), "event": event} and about["pile"] == name
    except (OSError, InputError, ValueError, KeyError, TypeError, struct.error):
        return None
    return (about, columns) if same and len(columns["images"]) else None
